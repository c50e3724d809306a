import type { SlicesFacts } from '../../packs/describe-model.js';
import type { SliceOutcome } from '../../packs/slices/add-slices.js';
import type { Slices } from '../../packs/slices/open-slices.js';
import { pairOfSplit } from '../../packs/slices/slice-pair.js';
import { formatBytes } from '../../shared/base/text/units.js';

/** The lines of `odmoe inspect` about slices. Pure. */
export function slicesLines(slices: SlicesFacts): string[] {
  const { pair, digest, upperBytes, lowerBytes, upperBitsPerWeight, bitsPerWeight } = slices;
  return [
    `  slices      (${pair}): ${formatBytes(upperBytes)} of upper slices (${bits(upperBitsPerWeight)} a weight), ` +
      `${formatBytes(lowerBytes)} of lower ones (${bits(bitsPerWeight)} with both)`,
    `              digest ${digest}`,
  ];
}

/** The lines that `odmoe pack --slices` prints at its end. Pure. */
export function slicedLines(outcome: SliceOutcome): string[] {
  const { pair, digest, upperBytes, lowerBytes, resumedLayers, mendedFiles, alreadyWhole } = outcome;
  const resumed = resumedLayers > 0 ? `, ${resumedLayers} layers of them from an earlier run` : '';
  const done = alreadyWhole ? 'the pack already has slices' : 'added slices';
  return [
    `  ${done} (${pair}): ${formatBytes(upperBytes)} upper, ${formatBytes(lowerBytes)} lower${resumed}`,
    ...(mendedFiles.length === 0 ? [] : [`  made again, because they were damaged: ${mendedFiles.join(', ')}`]),
    `  digest of the slices ${digest}`,
  ];
}

/** How damaged slices are mended. */
export function mendingRemedy({ directory, split }: Slices): string {
  return `make these files again with "odmoe pack ${directory} ${directory} --slices ${pairOfSplit(split)}"`;
}

function bits(count: number): string {
  return `${count.toFixed(2)} bits`;
}
