/**
 * What a shadow sequence may do next: the alignment of OD-MoE section 3.2 as a pure decision, shared by the daemon and
 * the recall benchmark.
 *
 * Iteration n (from 1) runs position promptTokens + n - 1. With token period T > 0 it takes main's token when
 * (n - 1) mod T = 0 and else shadow's own greedy token; with T = 0 always its own. With key-value period K > 0, main's
 * rows of all earlier positions are written before iterations with (n - 1) mod K = 0.
 */

/** How many iterations past main's last announced token a shadow may run on tokens of its own. */
export const MAX_LEAD_TOKENS = 1;

/** In iterations; 0: never. */
export interface AlignmentPeriods {
  token: number;
  keyValue: number;
}

export interface SequenceProgress {
  /** Main's tokens by position, as far as main has told: the last one is what main is running now. */
  mainTokens: readonly number[];
  promptTokens: number;
  /** Leading positions that are prefilled without predictions: the prompt and, for a shadow that came late, what followed. */
  prefillTokens: number;
  /** Positions in shadow's own KV cache, and so the one that runs next. */
  nextPosition: number;
  /** Shadow's own greedy token for nextPosition; null when it was not computed. */
  ownToken: number | null;
  maxPositions: number;
}

export type AlignmentStep =
  | { kind: 'prefill'; position: number; tokenIds: number[] }
  /** One iteration, or several that main has already passed, whose tokens are all main's. */
  | { kind: 'iterate'; position: number; tokenIds: number[]; tokenFrom: 'main' | 'shadow' }
  | { kind: 'wait'; reason: 'token' | 'keyValues' | 'lead' }
  /** No position is left. */
  | { kind: 'full' };

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

/**
 * Main sends the rows of earlier positions before the token of a position, on one ordered stream; so once the token is
 * here all the rows are.
 */
export function nextStep(progress: SequenceProgress, periods: AlignmentPeriods, maxRows: number): AlignmentStep {
  const { mainTokens, promptTokens, prefillTokens, nextPosition: position } = progress;
  if (position < prefillTokens) {
    const end = Math.min(prefillTokens, position + maxRows);
    return { kind: 'prefill', position, tokenIds: mainTokens.slice(position, end) };
  }
  if (position >= progress.maxPositions) return { kind: 'full' };
  const announced = mainTokens.length - 1;
  const useMain = progress.ownToken === null || takesMainToken(position, promptTokens, periods);
  if (useMain && announced < position) return { kind: 'wait', reason: 'token' };
  if (isDue(position, promptTokens, periods.keyValue) && announced < position) {
    return { kind: 'wait', reason: 'keyValues' };
  }
  if (position > announced + MAX_LEAD_TOKENS) return { kind: 'wait', reason: 'lead' };
  if (!useMain) return { kind: 'iterate', position, tokenIds: [progress.ownToken ?? 0], tokenFrom: 'shadow' };
  const end = position + passedRows(progress, periods, announced, maxRows);
  return { kind: 'iterate', position, tokenIds: mainTokens.slice(position, end), tokenFrom: 'main' };
}

/** How many positions one pass runs: those that main has passed, so that a shadow that fell behind catches up; else one. */
function passedRows(progress: SequenceProgress, periods: AlignmentPeriods, announced: number, maxRows: number): number {
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
