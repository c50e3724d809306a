import { SLICE_BITS, SLICE_GROUP_COLUMNS } from '../../shared/model/weight-dtype.js';
import type { SlicedSplit } from '../../shared/model/tensor-source.js';

/** A group of a row as its slices hold it. */
export interface SlicedGroup {
  /** The bits of the FP16 scale. */
  readonly scaleBits: number;
  readonly zero: number;
  readonly upper: readonly number[];
  readonly lower: readonly number[];
}

/** Reads a group of a row from the row's bytes in both slices (native/include/odmoe/slices.h). */
export function readGroup(
  split: SlicedSplit,
  [upper, lower]: readonly [Uint8Array, Uint8Array],
  columns: number,
  group: number,
): SlicedGroup {
  const bits = SLICE_BITS[split];
  const codeBytes = (bits * SLICE_GROUP_COLUMNS) / 8;
  const groups = Math.ceil(columns / SLICE_GROUP_COLUMNS);
  const count = Math.min(SLICE_GROUP_COLUMNS, columns - group * SLICE_GROUP_COLUMNS);
  const codesOf = (slice: Uint8Array): number[] => {
    const codes = slice.subarray(group * codeBytes, (group + 1) * codeBytes);
    return Array.from({ length: count }, (_, column) => codeAt(bits, codes, column));
  };
  const scaleAt = groups * codeBytes + group * 2;
  return {
    scaleBits: byteAt(upper, scaleAt) | (byteAt(upper, scaleAt + 1) << 8),
    zero: byteAt(upper, groups * (codeBytes + 2) + group),
    upper: codesOf(upper),
    lower: codesOf(lower),
  };
}

function codeAt(bits: number, codes: Uint8Array, column: number): number {
  if (bits === 4) return (byteAt(codes, column % 16) >> (column < 16 ? 0 : 4)) & 15;
  const low = (byteAt(codes, column % 8) >> ((column >> 3) * 2)) & 3;
  if (bits === 2) return low;
  return low | (((byteAt(codes, 8 + (column >> 3)) >> (column % 8)) & 1) << 2);
}

function byteAt(bytes: Uint8Array, at: number): number {
  return bytes[at] ?? 0;
}
