import { LEAST_PROMPT_CHUNK_ROWS } from './plan-pass.js';

/** Number of latest passes of one size that its time is taken from. */
const PASSES_OF_SIZE = 8;
/** Assumed cost of a further row, as a share of a pass's time, while all passes had about equally many rows. */
const ASSUMED_ROW_SHARE = 1 / LEAST_PROMPT_CHUNK_ROWS;
/** Under `auto`, a pass with a prompt chunk takes at most this many times its time without. Between these two times the factor falls evenly. */
const SHORT_PASS = { ms: 50, timesLonger: 4 };
const LONG_PASS = { ms: 200, timesLonger: 1.25 };
/** Number of passes in a row that have prompt chunks; then a pass of answers alone shows how long these take by themselves. */
const PASSES_WITH_PROMPT_CHUNK = 15;
/** A pass that takes this many times its allowed time makes prompt chunks smaller at once. */
const OVERSHOOT = 1.5;

/** Rows and time of a pass, or of all passes of one size. */
export interface MeasuredPass {
  rows: number;
  ms: number;
}

/** Measured times of passes by their rows: the medians of sizes that double, with straight lines between them. */
export class PassTimes {
  private readonly sizes = new Map<number, MeasuredPass[]>();

  /** Adds the measured time of a pass. */
  add(rows: number, ms: number): void {
    // The sizes have 1; 2; 3 and 4; 5 to 8 rows; and so on.
    const size = 32 - Math.clz32(rows - 1);
    this.sizes.set(size, [...(this.sizes.get(size) ?? []), { rows, ms }].slice(-PASSES_OF_SIZE));
  }

  /**
   * In the order of rising rows. By assumption, more rows never take less time, and k times the rows never take more than k times as long. Otherwise
   * one slow size, measured long ago, could keep prompt chunks from coming near it.
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

/** The lower median: one slow pass does not move it, and of two values it is the smaller one. */
function lowerMedian(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
}

/** Expected time of a pass with so many rows; null: nothing was measured. */
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
  // Beyond the measured sizes, a row costs the mean of the rows between the first and the last size.
  const rowMs =
    last === first ? ASSUMED_ROW_SHARE * first.ms : (last.ms - first.ms) / Math.max(1, last.rows - first.rows);
  return last.ms + rowMs * (rows - last.rows);
}

/**
 * Longest allowed time of a pass with a prompt chunk, where it takes `aloneMs` without. `auto`: at most 4 times as long where passes are short (50 ms
 * or less), so that a prompt comes to its end beside a quick stream; at most 1.25 times where they are long (200 ms or more), so that many users of a
 * slow cluster hardly wait for one another's prompts; evenly between.
 */
export function longestPassMs(aloneMs: number, maxDelayMs: number | 'auto'): number {
  if (maxDelayMs !== 'auto') return aloneMs + maxDelayMs;
  const share = Math.min(1, Math.max(0, (aloneMs - SHORT_PASS.ms) / (LONG_PASS.ms - SHORT_PASS.ms)));
  return aloneMs * (SHORT_PASS.timesLonger + share * (LONG_PASS.timesLonger - SHORT_PASS.timesLonger));
}

export interface PromptChunkBounds {
  maxDelayMs: number | 'auto';
  /** Most rows of a prompt chunk. */
  limit: number;
}

/**
 * Number of prompt rows that may join `answerRows` rows of answers, at most `limit`, so that the pass takes no longer than longestPassMs allows. At
 * least LEAST_PROMPT_CHUNK_ROWS in any case, if `limit` is not smaller.
 */
export function promptChunkRowsFor(
  measured: readonly MeasuredPass[],
  answerRows: number,
  { maxDelayMs, limit }: PromptChunkBounds,
): number {
  const least = Math.min(LEAST_PROMPT_CHUNK_ROWS, limit);
  const aloneMs = expectedPassMs(measured, answerRows);
  if (aloneMs === null) return least;
  const longestMs = longestPassMs(aloneMs, maxDelayMs);
  let [most, tooMany] = [least, limit + 1];
  // The expected time never falls with more rows.
  while (tooMany - most > 1) {
    const rows = Math.floor((most + tooMany) / 2);
    if ((expectedPassMs(measured, answerRows + rows) ?? Infinity) <= longestMs) most = rows;
    else tooMany = rows;
  }
  return most;
}

/** A joint pass that has run. */
export interface PassOfPromptChunk {
  answerRows: number;
  /** Rows of prompts. */
  promptChunkRows: number;
  ms: number;
}

/** Sizes the prompt chunks that join answers, and learns from each pass. */
export class PromptChunkSizer {
  private readonly times = new PassTimes();
  /** Passes in a row that had prompt chunks beside answers. */
  private passesWithPromptChunk = 0;
  /** Most rows of a prompt chunk after a pass that took too long; it doubles with each pass that did not. */
  private most = Infinity;

  constructor(private readonly bounds: PromptChunkBounds) {}

  /** Number of prompt rows for a pass with so many ready rows of answers; `answerRows` 0: answers go on, but none of them is ready. */
  rows(answerRows: number): number {
    if (answerRows > 0 && this.passesWithPromptChunk >= PASSES_WITH_PROMPT_CHUNK) return 0;
    const limit = Math.max(1, Math.min(this.bounds.limit, this.most));
    return promptChunkRowsFor(this.times.measured(), Math.max(1, answerRows), { ...this.bounds, limit });
  }

  /** A pass has run. */
  ran({ answerRows, promptChunkRows, ms }: PassOfPromptChunk): void {
    const aloneMs = expectedPassMs(this.times.measured(), Math.max(1, answerRows));
    this.times.add(answerRows + promptChunkRows, ms);
    if (answerRows === 0) return;
    this.passesWithPromptChunk = promptChunkRows > 0 ? this.passesWithPromptChunk + 1 : 0;
    if (promptChunkRows === 0 || aloneMs === null) return;
    const tookTooLong = ms > OVERSHOOT * longestPassMs(aloneMs, this.bounds.maxDelayMs);
    this.most = tookTooLong ? Math.max(LEAST_PROMPT_CHUNK_ROWS, Math.floor(promptChunkRows / 2)) : this.most * 2;
  }
}
