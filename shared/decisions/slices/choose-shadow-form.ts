/** The form of a shadow under `shadow.precision: auto`. Predictions change speed, never tokens, so a wrong choice costs time only. */
import { formatByteSize } from '../../base/text/byte-size.js';
import { requirePresent } from '../../base/errors/assert-invariant.js';
import { SLICED_PRECISIONS, type ShadowPrecision } from '../../settings/setting-choices.js';

export interface ShadowCandidate {
  readonly precision: ShadowPrecision;
  /** Memory of all of the shadow's weights. */
  readonly bytes: number;
}

export interface ShadowChoice {
  readonly precision: ShadowPrecision;
  readonly reason: string;
}

/** Forms that are chosen from. FP16 is none: a shadow reads all of its weights for a token, and would take twice as long for them. */
export const AUTO_PRECISIONS: readonly ShadowPrecision[] = ['int8', 'nf4', ...SLICED_PRECISIONS];

/** The share of a shadow's memory that weights may take. The rest is for keys and values, and for passes. */
const WEIGHTS_SHARE = 0.9;

/** The largest candidate that fits; if none does, the smallest. `memoryBytes`: all that the shadow may take. */
export function chooseShadowPrecision(candidates: readonly ShadowCandidate[], memoryBytes: number): ShadowChoice {
  const bySize = [...candidates].sort((left, right) => left.bytes - right.bytes);
  const largest = bySize.findLast(({ bytes }) => bytes <= memoryBytes * WEIGHTS_SHARE);
  const memory = formatByteSize(memoryBytes);
  if (largest !== undefined) return { precision: largest.precision, reason: `the largest form that fits ${memory}` };
  const smallest = requirePresent(bySize[0], 'there is a form to choose.');
  return { precision: smallest.precision, reason: `the smallest form, though none fits ${memory}` };
}
