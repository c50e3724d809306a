/**
 * Decides what a shadow sequence may do next: the alignment of OD-MoE section 3.2 and, beyond the paper, drafts and optimistic departure.
 * The decisions are pure. The daemon, the recall benchmark and the simulator share them; this file imports nothing.
 *
 * **Tokens.** Iteration n (from 1) runs position promptTokens + n - 1. With token period T > 0 main's token is *due* where
 * (n - 1) mod T = 0. At other iterations, and at all of them with T = 0, shadow uses its own guess, and a guess that differs from main's
 * token is no reason to start again.
 *
 * **Passes.** Main runs positions in passes (its own token and drafts after it). For each pass it announces the first position, the number
 * of rows, and the number of rows that the next pass should have: a `PassOutlook`. Predictions belong to passes (`passOf`).
 *
 * **Running ahead.** After main's last token shadow runs on its own guesses: the drafts of the pass that begins with that token; with
 * `optimistic` through the end of the next pass, too; otherwise, where no token is due, MAX_LEAD_TOKENS. If a due token differs from the
 * one that was run (`mustRestart`), shadow drops everything from there on and runs main's token.
 *
 * **Keys and values.** With key-value period K > 0 main's rows of all earlier positions are written before iterations with (n - 1) mod K = 0.
 * Positions after main's last token do not wait for them: rows for positions that have already run are written as soon as they are due for the next
 * position that runs. So a position that is run ahead attends to shadow's own rows of main's current pass, and to main's rows of all earlier passes.
 * Alignment is therefore one pass late, and recall is that of iterations 2 to rows + 1 after an alignment, instead of that of the first. Rows of
 * drafts that main has rejected are overwritten in the same way, by the rows of the pass that runs their positions again.
 */

/** Number of iterations after main's last announced token that a shadow may run on its own tokens if it is not optimistic. */
export const MAX_LEAD_TOKENS = 1;

/** Periods in iterations; 0: never. */
export interface AlignmentPeriods {
  token: number;
  keyValue: number;
}

/** Consecutive positions that main runs together. */
export interface PassRange {
  /** First position. */
  begin: number;
  /** At least 1. */
  rows: number;
}

/** Most finished passes that an outlook still names: shadow must be late by fewer. */
export const REMEMBERED_RANGES = 16;

/** The pass that main is in, or begins next, as far as main has announced it. */
export interface PassOutlook extends PassRange {
  /**
   * Finished passes, without rejected drafts, the oldest first. The list begins with a pass of several rows, as passes of one row before it need no
   * name.
   */
  passed: readonly PassRange[];
  /** False: main has not begun the pass yet; `rows` is then the number that it would like. */
  begun: boolean;
  /** Number of positions that main wants in the pass after it. At least 1. */
  nextRows: number;
  /** Number of drafts that had proved wrong. */
  branch: number;
}

/** Main's token at a position, with what it announces about its passes (AlignToken). */
export interface MainToken {
  position: number;
  tokenId: number;
  /** Rows of the pass that begins here. 0: no pass begins now. */
  rows: number;
  nextRows: number;
  branch: number;
  /** Main runs the position together with rows of other sequences. Left out: it does not. */
  joint?: boolean;
}

export interface ShadowProgress {
  /** Main's announced tokens by position. */
  mainTokens: readonly number[];
  promptTokens: number;
  /** Leading positions that are prefilled without predictions: the prompt and, for a shadow that connected late, the positions after it. */
  prefillTokens: number;
  /** Number of positions in shadow's own KV cache; this is the position that runs next. */
  nextPosition: number;
  /** Shadow's own guess for nextPosition; null when it was not computed. */
  guessedToken: number | null;
  maxPositions: number;
  outlook: PassOutlook;
  /** True: shadow runs ahead through the next pass. */
  optimistic: boolean;
}

export type AlignmentStep =
  | { kind: 'prefill'; position: number; tokenIds: number[] }
  /** One iteration, or several that main has already passed; the tokens of several are all main's. */
  | { kind: 'iterate'; position: number; tokenIds: number[]; tokenFrom: 'main' | 'shadow' }
  | { kind: 'wait'; reason: 'token' | 'keyValues' | 'lead' | 'prefix' }
  /** No position is left. */
  | { kind: 'full' };

/** A step that a sequence runs in a pass. */
export type RunnableStep = Extract<AlignmentStep, { kind: 'prefill' | 'iterate' }>;

/** Iteration number of a position, from 1. */
export function iterationOf(position: number, promptTokens: number): number {
  return position - promptTokens + 1;
}

function isDue(position: number, promptTokens: number, period: number): boolean {
  return period > 0 && (iterationOf(position, promptTokens) - 1) % period === 0;
}

export function takesMainToken(position: number, promptTokens: number, periods: AlignmentPeriods): boolean {
  return isDue(position, promptTokens, periods.token);
}

/**
 * Main's rows of positions below the result must be in the cache before `position` runs. The result is the position of the last aligned iteration up
 * to it. In the prompt, all rows so far may be written at once, so that those of a long prompt need not be stored until its end. 0: none.
 */
export function keyValuesDueBelow(position: number, promptTokens: number, periods: AlignmentPeriods): number {
  if (periods.keyValue === 0) return 0;
  if (position < promptTokens) return position;
  return position - ((position - promptTokens) % periods.keyValue);
}

/** The outlook before main has announced a token: the pass after the prefill has one row. */
export function firstOutlook(prefillTokens: number): PassOutlook {
  return { begin: prefillTokens, rows: 1, passed: [], begun: false, nextRows: 1, branch: 0 };
}

/**
 * The outlook after an announcement of main. With rows, a pass begins. Without rows, a position inside main's current pass was a draft that proved
 * right. Any other position is the first of a pass that main begins when it has the drafts it waits for. So is a draft's position if the branch says
 * that the draft proved wrong.
 */
export function outlookAfter(outlook: PassOutlook, announced: MainToken): PassOutlook {
  const { position: begin, rows, branch } = announced;
  const nextRows = Math.max(1, announced.nextRows);
  const passed = passedBy(outlook, begin);
  if (rows > 0) return { begin, rows, passed, begun: true, nextRows, branch };
  const inside = outlook.begun && begin > outlook.begin && begin < outlook.begin + outlook.rows;
  if (inside && branch === outlook.branch) return { ...outlook, nextRows };
  return { begin, rows: nextRows, passed, begun: false, nextRows, branch };
}

function passedBy({ begin, rows, begun, passed }: PassOutlook, position: number): readonly PassRange[] {
  const ran = Math.min(rows, position - begin);
  if (!begun || ran < 1) return passed;
  // Passes of one row count, too: otherwise passes of several rows would be remembered the longer, the rarer they are.
  const latest = [...passed, { begin, rows: ran }].slice(-REMEMBERED_RANGES);
  const first = latest.findIndex((pass) => pass.rows > 1);
  return first < 0 ? [] : latest.slice(first);
}

/**
 * The pass that a position belongs to, up to the one after those planned. A pass that is not remembered any more, or not planned yet, is taken as a
 * pass of one row.
 */
export function passOf({ begin, rows, nextRows, passed }: PassOutlook, position: number): PassRange {
  if (position < begin) {
    const earlier = passed.find((pass) => position >= pass.begin && position < pass.begin + pass.rows);
    return earlier ?? { begin: position, rows: 1 };
  }
  const next = begin + rows;
  if (position < next) return { begin, rows };
  return position < next + nextRows ? { begin: next, rows: nextRows } : { begin: next + nextRows, rows: 1 };
}

/** The first position of the passes that an outlook names. */
export function oldestPosition({ passed, begin }: PassOutlook): number {
  return passed[0]?.begin ?? begin;
}

/**
 * True if shadow has to drop what it ran from `position` on, because main's token there is due and another one was run. `ranTokens`: by position,
 * including those of the running pass.
 */
export function mustRestart(
  { position, tokenId }: { position: number; tokenId: number },
  ranTokens: readonly number[],
  promptTokens: number,
  periods: AlignmentPeriods,
): boolean {
  return (
    position < ranTokens.length && ranTokens[position] !== tokenId && takesMainToken(position, promptTokens, periods)
  );
}

/** True if shadow guesses the token of a position after it has run the one before: it may have to go on from its guess, or main drafts. */
export function needsGuess(
  position: number,
  progress: Omit<ShadowProgress, 'nextPosition' | 'guessedToken' | 'mainTokens'>,
  periods: AlignmentPeriods,
): boolean {
  if (position < progress.prefillTokens || position >= progress.maxPositions) return false;
  if (!takesMainToken(position, progress.promptTokens, periods)) return true;
  if (position === progress.prefillTokens) return false;
  return progress.optimistic || progress.outlook.rows > 1 || progress.outlook.nextRows > 1;
}

/**
 * Main sends the rows of earlier positions before the token of a position, on one ordered stream. So once the token is here, all these rows are here,
 * too.
 */
export function nextStep(progress: ShadowProgress, periods: AlignmentPeriods, maxRows: number): AlignmentStep {
  const { mainTokens, promptTokens, prefillTokens, nextPosition: position, guessedToken } = progress;
  if (position < prefillTokens) {
    const end = Math.min(prefillTokens, position + maxRows);
    return { kind: 'prefill', position, tokenIds: mainTokens.slice(position, end) };
  }
  if (position >= progress.maxPositions) return { kind: 'full' };
  const announced = mainTokens.length - 1;
  if (position > announced) return ahead(progress, periods, announced);
  if (guessedToken !== null && !takesMainToken(position, promptTokens, periods)) {
    return { kind: 'iterate', position, tokenIds: [guessedToken], tokenFrom: 'shadow' };
  }
  const end = position + passedRows(progress, periods, announced, maxRows);
  return { kind: 'iterate', position, tokenIds: mainTokens.slice(position, end), tokenFrom: 'main' };
}

/** The step at a position whose token main has not announced. */
function ahead(progress: ShadowProgress, periods: AlignmentPeriods, announced: number): AlignmentStep {
  const { promptTokens, nextPosition: position, guessedToken } = progress;
  if (guessedToken === null) return { kind: 'wait', reason: 'token' };
  if (position >= endOfGuesses(progress, announced)) {
    if (progress.optimistic && announced >= progress.outlook.begin) return { kind: 'wait', reason: 'lead' };
    if (takesMainToken(position, promptTokens, periods)) return { kind: 'wait', reason: 'token' };
    if (isDue(position, promptTokens, periods.keyValue)) return { kind: 'wait', reason: 'keyValues' };
    if (position > announced + MAX_LEAD_TOKENS) return { kind: 'wait', reason: 'lead' };
  }
  return { kind: 'iterate', position, tokenIds: [guessedToken], tokenFrom: 'shadow' };
}

/** The position before which guesses are run whatever is due: drafts, and with `optimistic` the next pass. */
function endOfGuesses({ outlook, optimistic }: ShadowProgress, announced: number): number {
  if (announced < outlook.begin) return outlook.begin;
  return outlook.begin + outlook.rows + (optimistic ? outlook.nextRows : 0);
}

/** Number of positions that one pass runs: those that main has passed, so that a shadow that fell behind catches up; otherwise one. */
function passedRows(progress: ShadowProgress, periods: AlignmentPeriods, announced: number, maxRows: number): number {
  const { nextPosition, promptTokens } = progress;
  let rows = 1;
  while (
    rows < maxRows &&
    nextPosition + rows < announced &&
    takesMainToken(nextPosition + rows, promptTokens, periods)
  ) {
    rows += 1;
  }
  return rows;
}
