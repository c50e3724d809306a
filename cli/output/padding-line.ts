import type { PackCompression } from '../../packs/pack-compression.js';
import { CHUNK_ALIGNMENT_BYTES } from '../../packs/format/pack-layout.js';
import { formatBytes } from '../../shared/base/text/units.js';

/** Smallest share of the codec's saving that must remain on the disk; below it, a line reports the loss. */
const SAVING_LEFT = 0.5;

/** A line if padding between chunks takes much of the codec's saving, as with tiny models; else null. Pure. */
export function paddingLine({ shippedBytes, storedBytes, diskBytes, rawDiskBytes }: PackCompression): string | null {
  const saved = shippedBytes - storedBytes;
  if (saved <= 0 || rawDiskBytes - diskBytes >= SAVING_LEFT * saved) return null;
  return (
    `padding eats the saving: chunks begin at multiples of ${CHUNK_ALIGNMENT_BYTES} bytes, so that the experts take ` +
    `${formatBytes(diskBytes)} of disk, ${formatBytes(rawDiskBytes)} as raw; fewer --shards or --codec raw suit so small a model`
  );
}
