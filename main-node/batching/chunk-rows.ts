import { LEAST_CHUNK_ROWS } from './plan-pass.js';

/** What a pass of one size takes is judged by so many of them. */
const PASSES_OF_SIZE = 8;
/** What a further row is taken to cost of a pass, while all passes had about equally many. */
const ASSUMED_ROW_SHARE = 1 / LEAST_CHUNK_ROWS;
/** Under `auto` a pass with a chunk takes at most so many times what it takes without. Between these passes the factor falls evenly. */
const SHORT_PASS = { ms: 50, timesLonger: 4 };
const LONG_PASS = { ms: 200, timesLonger: 1.25 };
/** So many passes in a row have chunks; then one of answers alone shows what they take by themselves. */
const PASSES_WITH_CHUNK = 15;
/** A pass that takes so many times what it may is answered by smaller chunks at once. */
const OVERSHOOT = 1.5;

/** What passes of a size took, or had. */
export interface MeasuredPass {
  rows: number;
  ms: number;
}

/** What a pass takes by its rows, as measured: medians of sizes that double, and straight lines between them. */
export class PassTimes {
  private readonly sizes = new Map<number, MeasuredPass[]>();

  /** A pass of so many rows took so long. */
  add(rows: number, ms: number): void {
    // Of rows 1; 2; 3 and 4; 5 to 8; and so on.
    const size = 32 - Math.clz32(rows - 1);
    this.sizes.set(size, [...(this.sizes.get(size) ?? []), { rows, ms }].slice(-PASSES_OF_SIZE));
  }

  /**
   * Rising rows. More rows are taken never to be quicker, and k times the rows never to take more than k times as long: so what a size took
   * long ago cannot keep chunks from coming near it.
   */
  measured(): MeasuredPass[] {
    let before: MeasuredPass | null = null;
    return [...this.sizes.entries()]
      .sort(([left], [right]) => left - right)
      .map(([, passes]) => {
        const rows = lowerMedian(passes.map((pass) => pass.rows));
        const ms = lowerMedian(passes.map((pass) => pass.ms));
        const within = before === null ? ms : Math.min(Math.max(ms, before.ms), before.ms * (rows / before.rows));
        return (before = { rows, ms: within });
      });
  }
}

/** One slow pass does not move it; of two passes it is the quicker one. */
function lowerMedian(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}

/** What a pass of so many rows is expected to take; null: nothing was measured. */
export function expectedPassMs(measured: readonly MeasuredPass[], rows: number): number | null {
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
 * What a pass may take with a chunk that takes `aloneMs` without. `auto`: at most 4 times as long where passes are short (50 ms or less), so
 * that a prompt comes to its end beside a quick stream; at most 1.25 times where they are long (200 ms or more), so that many users of a slow
 * cluster hardly wait for one another's prompts; evenly between.
 */
export function longestPassMs(aloneMs: number, maxDelayMs: number | 'auto'): number {
  if (maxDelayMs !== 'auto') return aloneMs + maxDelayMs;
  const share = Math.min(1, Math.max(0, (aloneMs - SHORT_PASS.ms) / (LONG_PASS.ms - SHORT_PASS.ms)));
  return aloneMs * (SHORT_PASS.timesLonger + share * (LONG_PASS.timesLonger - SHORT_PASS.timesLonger));
}

export interface ChunkBounds {
  maxDelayMs: number | 'auto';
  /** Rows of a chunk. */
  limit: number;
}

/**
 * How many rows of prompts may join `answerRows` rows of answers, at most `limit`, so that the pass takes no longer than it may
 * (longestPassMs). LEAST_CHUNK_ROWS in any case.
 */
export function chunkRowsFor(
  measured: readonly MeasuredPass[],
  answerRows: number,
  { maxDelayMs, limit }: ChunkBounds,
): number {
  const least = Math.min(LEAST_CHUNK_ROWS, limit);
  const aloneMs = expectedPassMs(measured, answerRows);
  if (aloneMs === null) return least;
  const longestMs = longestPassMs(aloneMs, maxDelayMs);
  let [most, tooMany] = [least, limit + 1];
  // The expectation never falls with more rows.
  while (tooMany - most > 1) {
    const rows = Math.floor((most + tooMany) / 2);
    if ((expectedPassMs(measured, answerRows + rows) ?? Infinity) <= longestMs) most = rows;
    else tooMany = rows;
  }
  return most;
}

/** A joint pass as it ran. */
export interface PassOfChunk {
  answerRows: number;
  /** Of prompts. */
  chunkRows: number;
  ms: number;
}

/** Sizes the chunks that join answers, and learns from each pass. */
export class ChunkSizer {
  private readonly times = new PassTimes();
  /** Passes in a row that had chunks beside answers. */
  private passesWithChunk = 0;
  /** After a pass that took too long, until passes are as expected again. */
  private most = Infinity;

  constructor(private readonly bounds: ChunkBounds) {}

  /** Rows of prompts for a pass with so many rows of answers that are ready; 0 of these: answers go on, but none is ready. */
  rows(answerRows: number): number {
    if (answerRows > 0 && this.passesWithChunk >= PASSES_WITH_CHUNK) return 0;
    const limit = Math.max(1, Math.min(this.bounds.limit, this.most));
    return chunkRowsFor(this.times.measured(), Math.max(1, answerRows), { ...this.bounds, limit });
  }

  /** A pass has run. */
  ran({ answerRows, chunkRows, ms }: PassOfChunk): void {
    const aloneMs = expectedPassMs(this.times.measured(), Math.max(1, answerRows));
    this.times.add(answerRows + chunkRows, ms);
    if (answerRows === 0) return;
    this.passesWithChunk = chunkRows > 0 ? this.passesWithChunk + 1 : 0;
    if (chunkRows === 0 || aloneMs === null) return;
    const tookTooLong = ms > OVERSHOOT * longestPassMs(aloneMs, this.bounds.maxDelayMs);
    this.most = tookTooLong ? Math.max(LEAST_CHUNK_ROWS, Math.floor(chunkRows / 2)) : this.most * 2;
  }
}
