/** The rows of a pass that a message concerns, as runs of consecutive positions: a prefill of 128 rows takes only a few bytes. */
import { requirePresent } from '../base/errors/assert-invariant.js';
import type { PassRow, RowRun } from './messages.js';

export function rowCount(runs: readonly RowRun[]): number {
  return runs.reduce((sum, { rows }) => sum + rows, 0);
}

/** The first row identifies the pass: two passes in progress never run rows of one sequence. `rows` must not be empty. */
export function passOfRuns(rows: readonly RowRun[]): { pass: PassRow; rows: readonly RowRun[] } {
  const { sequence, position } = requirePresent(rows[0], 'a pass has rows.');
  return { pass: { sequence, position }, rows };
}

/** Rows of one sequence, and the pass that begins with the first of them. */
export function passOfSequence(
  sequence: number,
  position: number,
  rows: number,
): { pass: PassRow; rows: readonly RowRun[] } {
  return passOfRuns([{ sequence, position, rows }]);
}

/** The rows at these indexes, which must rise. */
export function selectRows(runs: readonly RowRun[], indexes: readonly number[]): RowRun[] {
  const selected: RowRun[] = [];
  let run = 0;
  let firstOfRun = 0;
  for (const index of indexes) {
    let current = runs[run];
    while (current !== undefined && index >= firstOfRun + current.rows) {
      firstOfRun += current.rows;
      current = runs[++run];
    }
    const { sequence, position } = requirePresent(
      current,
      () => `row ${index} is one of the pass's ${rowCount(runs)}.`,
    );
    append(selected, sequence, position + index - firstOfRun);
  }
  return selected;
}

function append(runs: RowRun[], sequence: number, position: number): void {
  const last = runs.at(-1);
  if (last?.sequence === sequence && last.position + last.rows === position) last.rows += 1;
  else runs.push({ sequence, position, rows: 1 });
}

/** The rows without those of the sequence at positions in [from, end). */
export function rowsOutside(
  runs: readonly RowRun[],
  { sequence, from, end }: { sequence: number; from: number; end: number },
): readonly RowRun[] {
  return runs.flatMap((run) => {
    const runEnd = run.position + run.rows;
    if (run.sequence !== sequence || runEnd <= from || run.position >= end) return [run];
    return [
      { ...run, rows: from - run.position },
      { ...run, position: end, rows: runEnd - end },
    ].filter(({ rows }) => rows > 0);
  });
}
