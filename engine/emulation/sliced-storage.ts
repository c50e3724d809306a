/** How workers of a profiled testbed store sliced experts. */
import { bitsPerWeight } from '../../packs/slices/slice-pair.js';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import type { StorageForm } from './device-profile.js';

const BYTE_BITS = 8;

/** Upper slices in the place of exponents, and lower ones in that of signs and mantissas. Under 'low' there are no lower ones. */
export function slicedStorage({ split, kind }: SlicedQuality): StorageForm {
  const { upper, both } = bitsPerWeight(split);
  const storedBytes = (kind === 'low' ? upper : both) / BYTE_BITS;
  return { exponentBytes: upper / BYTE_BITS, storedBytes, slotBytes: storedBytes };
}
