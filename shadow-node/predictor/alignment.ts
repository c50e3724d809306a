/**
 * What a shadow sequence may do next: the alignment of OD-MoE section 3.2, and past the paper drafts and optimistic departure, as
 * pure decisions. Shared by the daemon, the recall benchmark and the simulator; imports nothing.
 *
 * **Tokens.** Iteration n (from 1) runs position promptTokens + n - 1. With token period T > 0 main's token is *due* where
 * (n - 1) mod T = 0; elsewhere, and everywhere with T = 0, shadow goes by its own guess, and a guess that main does not share is no
 * reason to start again.
 *
 * **Passes.** main runs positions in passes (its own token and drafts after it) and tells of each where it begins, how many rows it
 * has and how many the next should have: a `PassOutlook`. Predictions belong to passes (`passOf`).
 *
 * **Running ahead.** Past main's last token shadow runs on its own guesses: the drafts of the pass that begins with that token; with
 * `optimistic` through the end of the next pass, too; else, where no token is due, MAX_LEAD_TOKENS. A due token that turns out to
 * be another than the one that was run (`mustRestart`) makes it forget everything from there on and run main's.
 *
 * **Keys and values.** With key-value period K > 0 main's rows of all earlier positions are written before iterations with
 * (n - 1) mod K = 0. Positions run past main's last token do not wait for them: rows that come for positions that have been run are
 * written as soon as they are due for whatever runs next. So a position that is run ahead attends to shadow's own rows of the pass
 * that main is in, and to main's rows of all earlier passes: alignment is one pass late, and recall is what it would be at
 * iterations 2 to rows + 1 after an alignment instead of the first. Rows of drafts that main has rejected are overwritten likewise,
 * by those of the pass that runs their positions again.
 */

/** How many iterations past main's last announced token a shadow may run on tokens of its own where it is not optimistic. */
export const MAX_LEAD_TOKENS = 1;

/** In iterations; 0: never. */
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

/** Passes that main has finished and that an outlook still names: shadow may be late by fewer. */
export const REMEMBERED_RANGES = 16;

/** The pass that main is in, or begins next, as far as it has told. */
export interface PassOutlook extends PassRange {
  /** Finished passes, without rejected drafts, the oldest first: from one of several rows on, as others need no name. */
  passed: readonly PassRange[];
  /** False: main has yet to begin it; `rows` are then those that it would like. */
  begun: boolean;
  /** Positions that main wants the pass after it to have. At least 1. */
  nextRows: number;
  /** Drafts that had proved wrong. */
  branch: number;
}

/** Main's token at a position and what it says of its passes (AlignToken). */
export interface MainToken {
  position: number;
  tokenId: number;
  /** Of the pass that begins here. 0: none begins now. */
  rows: number;
  nextRows: number;
  branch: number;
  /** Main runs the position together with rows of other sequences. Left out: it does not. */
  joint?: boolean;
}

export interface ShadowProgress {
  /** Main's tokens by position, as far as main has told. */
  mainTokens: readonly number[];
  promptTokens: number;
  /** Leading positions that are prefilled without predictions: the prompt and, for a shadow that came late, what followed. */
  prefillTokens: number;
  /** Positions in shadow's own KV cache, and so the one that runs next. */
  nextPosition: number;
  /** Shadow's own guess for nextPosition; null when it was not computed. */
  ownToken: number | null;
  maxPositions: number;
  outlook: PassOutlook;
  /** Runs ahead through the next pass. */
  optimistic: boolean;
}

export type AlignmentStep =
  | { kind: 'prefill'; position: number; tokenIds: number[] }
  /** One iteration, or several that main has already passed, whose tokens are all main's. */
  | { kind: 'iterate'; position: number; tokenIds: number[]; tokenFrom: 'main' | 'shadow' }
  | { kind: 'wait'; reason: 'token' | 'keyValues' | 'lead' | 'prefix' }
  /** No position is left. */
  | { kind: 'full' };

/** What a sequence runs in a pass. */
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
 * Main's rows of positions below the result belong in the cache before `position` runs: that of the last aligned
 * iteration up to it. In the prompt all rows so far may be taken over at once, so that those of a long one need not be kept
 * until it is through. 0: none.
 */
export function keyValuesDueBelow(position: number, promptTokens: number, periods: AlignmentPeriods): number {
  if (periods.keyValue === 0) return 0;
  if (position < promptTokens) return position;
  return position - ((position - promptTokens) % periods.keyValue);
}

/** Before main has told a token: the pass after the prefill is one row. */
export function firstOutlook(prefillTokens: number): PassOutlook {
  return { begin: prefillTokens, rows: 1, passed: [], begun: false, nextRows: 1, branch: 0 };
}

/**
 * What main's announcement says of its passes. With rows a pass begins. Without: a position inside the pass that main is in was a
 * draft that proved right; any other is the first of a pass that main begins when it has the drafts it waits for, and so is a
 * draft's position where the branch says that it proved wrong.
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
  // Passes of one row count: else those of several rows would be remembered the longer, the rarer they are.
  const latest = [...passed, { begin, rows: ran }].slice(-REMEMBERED_RANGES);
  const first = latest.findIndex((pass) => pass.rows > 1);
  return first < 0 ? [] : latest.slice(first);
}

/**
 * The pass that a position belongs to, up to one past those planned. One that is remembered no more, or not planned yet, is taken as a
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
 * Whether shadow has to forget what it ran from `position` on, because main's token there is due and another one was run.
 * `ranTokens`: by position, with those of a pass that runs now.
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

/** Whether shadow guesses the token of a position, having run the one before: where it may have to go on from its guess, or main drafts. */
export function needsGuess(
  position: number,
  progress: Omit<ShadowProgress, 'nextPosition' | 'ownToken' | 'mainTokens'>,
  periods: AlignmentPeriods,
): boolean {
  if (position < progress.prefillTokens || position >= progress.maxPositions) return false;
  if (!takesMainToken(position, progress.promptTokens, periods)) return true;
  if (position === progress.prefillTokens) return false;
  return progress.optimistic || progress.outlook.rows > 1 || progress.outlook.nextRows > 1;
}

/**
 * Main sends the rows of earlier positions before the token of a position, on one ordered stream; so once the token is
 * here all the rows are.
 */
export function nextStep(progress: ShadowProgress, periods: AlignmentPeriods, maxRows: number): AlignmentStep {
  const { mainTokens, promptTokens, prefillTokens, nextPosition: position, ownToken } = progress;
  if (position < prefillTokens) {
    const end = Math.min(prefillTokens, position + maxRows);
    return { kind: 'prefill', position, tokenIds: mainTokens.slice(position, end) };
  }
  if (position >= progress.maxPositions) return { kind: 'full' };
  const announced = mainTokens.length - 1;
  if (position > announced) return ahead(progress, periods, announced);
  if (ownToken !== null && !takesMainToken(position, promptTokens, periods)) {
    return { kind: 'iterate', position, tokenIds: [ownToken], tokenFrom: 'shadow' };
  }
  const end = position + passedRows(progress, periods, announced, maxRows);
  return { kind: 'iterate', position, tokenIds: mainTokens.slice(position, end), tokenFrom: 'main' };
}

/** A position whose token main has not told. */
function ahead(progress: ShadowProgress, periods: AlignmentPeriods, announced: number): AlignmentStep {
  const { promptTokens, nextPosition: position, ownToken } = progress;
  if (ownToken === null) return { kind: 'wait', reason: 'token' };
  if (position >= endOfGuesses(progress, announced)) {
    if (progress.optimistic && announced >= progress.outlook.begin) return { kind: 'wait', reason: 'lead' };
    if (takesMainToken(position, promptTokens, periods)) return { kind: 'wait', reason: 'token' };
    if (isDue(position, promptTokens, periods.keyValue)) return { kind: 'wait', reason: 'keyValues' };
    if (position > announced + MAX_LEAD_TOKENS) return { kind: 'wait', reason: 'lead' };
  }
  return { kind: 'iterate', position, tokenIds: [ownToken], tokenFrom: 'shadow' };
}

/** The position before which guesses are run whatever is due: drafts, and with optimism the next pass. */
function endOfGuesses({ outlook, optimistic }: ShadowProgress, announced: number): number {
  if (announced < outlook.begin) return outlook.begin;
  return outlook.begin + outlook.rows + (optimistic ? outlook.nextRows : 0);
}

/** How many positions one pass runs: those that main has passed, so that a shadow that fell behind catches up; else one. */
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
