import { LEAST_CHUNK_ROWS } from './plan-pass.js';

/** A mean follows a change within about so many passes of its size. */
const PASSES_OF_MEAN = 8;
/** What a further row is taken to cost of a pass, while all passes had about equally many. */
const ASSUMED_ROW_SHARE = 1 / LEAST_CHUNK_ROWS;
/** Under `auto` a pass with a chunk takes at most about so many times what it takes without: eight users then wait for a token less than three
 * times as long as one does (docs/results.md). */
const LONGER_WITH_CHUNK = 1.25;

/** Means of the passes of about equally many rows. */
interface MeasuredSize {
  rows: number;
  ms: number;
  passes: number;
}

/** What a pass takes by its rows, as measured: means of sizes that double, and straight lines between them. */
export class PassTimes {
  private readonly sizes = new Map<number, MeasuredSize>();

  /** A pass of so many rows took so long. */
  add(rows: number, ms: number): void {
    // Of rows 1; 2; 3 and 4; 5 to 8; and so on.
    const size = 32 - Math.clz32(rows - 1);
    const known = this.sizes.get(size) ?? { rows, ms, passes: 0 };
    known.passes = Math.min(known.passes + 1, PASSES_OF_MEAN);
    known.rows += (rows - known.rows) / known.passes;
    known.ms += (ms - known.ms) / known.passes;
    this.sizes.set(size, known);
  }

  /** Rising rows; more rows are taken never to be quicker. */
  measured(): { rows: number; ms: number }[] {
    let longestMs = 0;
    return [...this.sizes.entries()]
      .sort(([left], [right]) => left - right)
      .map(([, { rows, ms }]) => ({ rows, ms: (longestMs = Math.max(longestMs, ms)) }));
  }
}

/** What a pass of so many rows is expected to take; null: nothing was measured. */
export function expectedPassMs(measured: readonly { rows: number; ms: number }[], rows: number): number | null {
  const [first] = measured;
  const last = measured.at(-1);
  if (first === undefined || last === undefined) return null;
  if (rows <= first.rows) return first.ms;
  for (const [index, above] of measured.entries()) {
    const below = measured[index - 1];
    if (below === undefined || rows > above.rows) continue;
    return below.ms + ((above.ms - below.ms) * (rows - below.rows)) / (above.rows - below.rows);
  }
  // Behind what was measured, a row costs what it cost on the whole way there.
  const rowMs =
    last === first ? ASSUMED_ROW_SHARE * first.ms : (last.ms - first.ms) / Math.max(1, last.rows - first.rows);
  return last.ms + rowMs * (rows - last.rows);
}

/**
 * How many rows of prompts may join `answerRows` rows of answers, at most `limit`, so that they delay a token by no more than
 * maxDelayMs; `auto`: by no more than a quarter of what the pass takes without them. LEAST_CHUNK_ROWS in any case.
 */
export function chunkRowsFor(
  measured: readonly { rows: number; ms: number }[],
  answerRows: number,
  { maxDelayMs, limit }: { maxDelayMs: number | 'auto'; limit: number },
): number {
  const least = Math.min(LEAST_CHUNK_ROWS, limit);
  const aloneMs = expectedPassMs(measured, answerRows);
  if (aloneMs === null) return least;
  const longestMs = maxDelayMs === 'auto' ? LONGER_WITH_CHUNK * aloneMs : aloneMs + maxDelayMs;
  let [most, tooMany] = [least, limit + 1];
  // The expectation never falls with more rows.
  while (tooMany - most > 1) {
    const rows = Math.floor((most + tooMany) / 2);
    if ((expectedPassMs(measured, answerRows + rows) ?? Infinity) <= longestMs) most = rows;
    else tooMany = rows;
  }
  return most;
}
