/** The pairs of bits that experts are sliced into: bits of a whole code, and of its upper slice. Pure. */
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { SlicedSplit } from '../../shared/model/tensor-source.js';
import { SLICE_GROUP_COLUMNS, planeRowBytes } from '../../shared/model/weight-dtype.js';

/** Splits by the name of their pair, as `odmoe pack --slices` takes it. */
const SPLIT_OF_PAIR = {
  '8,4': 'sliced84',
  '6,3': 'sliced63',
  '4,2': 'sliced42',
} as const satisfies Record<string, SlicedSplit>;

export const SLICE_PAIRS: readonly string[] = Object.keys(SPLIT_OF_PAIR);
export const SLICED_SPLITS = Object.values(SPLIT_OF_PAIR);

/** @throws USAGE if there is no such pair */
export function splitOfPair(text: string): SlicedSplit {
  const split = Object.entries(SPLIT_OF_PAIR).find(([pair]) => pair === text.replace(/\s/g, ''))?.[1];
  if (split !== undefined) return split;
  throw new OdmoeError('USAGE', `slices ${JSON.stringify(text)}: expected one of ${SLICE_PAIRS.join('; ')}`);
}

/** "8,4" */
export function pairOfSplit(split: SlicedSplit): string {
  return Object.entries(SPLIT_OF_PAIR).find(([, other]) => other === split)?.[0] ?? split;
}

/** Stored bits of a weight in the upper slice alone, and in both slices, for rows of whole groups. */
export function bitsPerWeight(split: SlicedSplit): { upper: number; both: number } {
  const [upper = 0, lower = 0] = planeRowBytes(split, SLICE_GROUP_COLUMNS).map(
    (bytes) => (bytes * 8) / SLICE_GROUP_COLUMNS,
  );
  return { upper, both: upper + lower };
}
