/** The rows of a pass that a message concerns, as ranges of consecutive positions: a prefill of 128 rows takes only a few bytes. */
import { requirePresent } from '../base/errors/assert-invariant.js';
import type { PassRow, RowRange } from './messages.js';

export function rowCount(ranges: readonly RowRange[]): number {
  return ranges.reduce((sum, { rows }) => sum + rows, 0);
}

/** The number of rows on which an expert of a pass with these rows runs. */
export function rowsOfExpert({ rows }: { readonly rows: readonly number[] }, ranges: readonly RowRange[]): number {
  return rows.length === 0 ? rowCount(ranges) : rows.length;
}

/** The first row identifies the pass: two passes in progress never run rows of one sequence. `rows` must not be empty. */
export function passOfRanges(rows: readonly RowRange[]): { pass: PassRow; rows: readonly RowRange[] } {
  const { sequence, position } = requirePresent(rows[0], 'a pass has rows.');
  return { pass: { sequence, position }, rows };
}

/** Rows of one sequence, and the pass that begins with the first of them. */
export function passOfSequence(
  sequence: number,
  position: number,
  rows: number,
): { pass: PassRow; rows: readonly RowRange[] } {
  return passOfRanges([{ sequence, position, rows }]);
}

/** The rows at these indexes, which must rise. */
export function selectRows(ranges: readonly RowRange[], indexes: readonly number[]): RowRange[] {
  const selected: RowRange[] = [];
  let rangeIndex = 0;
  let firstOfRange = 0;
  for (const index of indexes) {
    let current = ranges[rangeIndex];
    while (current !== undefined && index >= firstOfRange + current.rows) {
      firstOfRange += current.rows;
      current = ranges[++rangeIndex];
    }
    const { sequence, position } = requirePresent(
      current,
      () => `row ${index} is one of the pass's ${rowCount(ranges)}.`,
    );
    append(selected, sequence, position + index - firstOfRange);
  }
  return selected;
}

function append(ranges: RowRange[], sequence: number, position: number): void {
  const last = ranges.at(-1);
  if (last?.sequence === sequence && last.position + last.rows === position) last.rows += 1;
  else ranges.push({ sequence, position, rows: 1 });
}

/** The rows without those of the sequence at positions in [from, end). */
export function rowsOutside(
  ranges: readonly RowRange[],
  { sequence, from, end }: { sequence: number; from: number; end: number },
): readonly RowRange[] {
  return ranges.flatMap((range) => {
    const rangeEnd = range.position + range.rows;
    if (range.sequence !== sequence || rangeEnd <= from || range.position >= end) return [range];
    return [
      { ...range, rows: from - range.position },
      { ...range, position: end, rows: rangeEnd - end },
    ].filter(({ rows }) => rows > 0);
  });
}
