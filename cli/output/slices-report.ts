import type { SlicesFacts } from '../../packs/describe-model.js';
import type { SliceOutcome } from '../../packs/slices/add-slices.js';
import type { Slices } from '../../packs/slices/open-slices.js';
import { pairOfSplit } from '../../packs/slices/slice-pair.js';
import type { MeasuredTheta } from '../../shared/decisions/slices/plan-readings.js';
import { formatBytes } from '../../shared/base/text/units.js';

const PAIRS_IN_LINE = 5;

/** The lines of `odmoe inspect` about slices. Pure. */
export function slicesLines(slices: SlicesFacts): string[] {
  const { pair, digest, upperBytes, lowerBytes, slotBytes, upperBitsPerWeight, bitsPerWeight, theta } = slices;
  const hasLower = lowerBytes > 0;
  const lower = hasLower
    ? `${formatBytes(lowerBytes)} of lower ones (${bits(bitsPerWeight)} with both)`
    : 'no lower ones';
  const both = hasLower ? `, ${formatBytes(slotBytes.both)} with both slices` : '';
  return [
    `  slices      (${pair}): ${formatBytes(upperBytes)} of upper slices (${bits(upperBitsPerWeight)} a weight), ${lower}`,
    `              worker slot ${formatBytes(slotBytes.upper)} of device memory for an upper slice${both}`,
    `              digest ${digest}`,
    ...thresholdLines(theta),
  ];
}

/** The line about slices in the making. Which pair it is, only the command that began them says. */
export function unfinishedLine(directory: string): string {
  return `  slices      unfinished: "odmoe pack ${directory} ${directory} --slices" with the same bits goes on with them`;
}

/** The line about damaged slices; the error after the description says which. */
export function damagedLine(isDescribed: boolean): string {
  return isDescribed ? '              damaged' : '  slices      damaged: slices.json is not readable';
}

/** The share of executions that each threshold makes critical. */
function thresholdLines(theta: readonly MeasuredTheta[] | null): string[] {
  if (theta === null) return ['              critical executions: no thresholds were measured'];
  if (theta.length === 0) return ['              critical executions: no threshold separates executions of this model'];
  const pairs = theta.map((one) => `${one.critical.toFixed(2)} from ${one.theta.toFixed(3)}`);
  const lines: string[] = [];
  for (let first = 0; first < pairs.length; first += PAIRS_IN_LINE) {
    lines.push(`                ${pairs.slice(first, first + PAIRS_IN_LINE).join(', ')}`);
  }
  return ['              critical executions, by their weight (theta):', ...lines];
}

/** The lines that `odmoe pack --slices` prints about slices. Pure. */
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
