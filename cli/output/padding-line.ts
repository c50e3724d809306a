import type { PackCompression } from '../../packs/pack-compression.js';
import { CHUNK_ALIGNMENT_BYTES } from '../../packs/format/pack-layout.js';
import { formatBytes } from '../../shared/base/text/units.js';

/** Below this share of what the codec saves, it is worth saying that the rest is lost on the disk. */
const SAVING_LEFT = 0.5;

/** One line where padding between chunks eats what the codec saves, as with tiny models; else null. Pure. */
export function paddingLine({ shippedBytes, storedBytes, diskBytes, rawDiskBytes }: PackCompression): string | null {
  const saved = shippedBytes - storedBytes;
  if (saved <= 0 || rawDiskBytes - diskBytes >= SAVING_LEFT * saved) return null;
  return (
    `padding eats the saving: chunks begin at multiples of ${CHUNK_ALIGNMENT_BYTES} bytes, so that the experts take ` +
    `${formatBytes(diskBytes)} of disk, ${formatBytes(rawDiskBytes)} as raw; fewer --shards or --codec raw suit so small a model`
  );
}
