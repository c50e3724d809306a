/** Latest drafts whose times are remembered. */
const REMEMBERED = 8;
/** Passes until a source that did not pay is asked again: the least number, and the most. */
export const LEAST_UNTIL_RETRY = 16;
export const MOST_UNTIL_RETRY = 1024;
/** Most of the passes' time that asking again may take. */
export const RETRY_SHARE = 0.03;

/**
 * The time in which a source makes a draft, over all answers. The middle of the latest times counts: a single slow one, as where the rows of a long prompt
 * come first, decides nothing.
 */
export class MakingCosts {
  private readonly latest = new Float64Array(REMEMBERED);
  private measured = 0;

  /** Milliseconds for each draft; 0: not measured yet. */
  get draftMs(): number {
    const known = this.latest.slice(0, Math.min(this.measured, REMEMBERED)).sort();
    return known[Math.floor((known.length - 1) / 2)] ?? 0;
  }

  /** So many drafts, one at least, were made in this time. */
  made(drafts: number, ms: number): void {
    this.latest[this.measured++ % REMEMBERED] = ms / drafts;
  }
}

/** Passes until a source that did not pay makes one draft again, to notice when it pays: so many that this costs at most RETRY_SHARE of the time. */
export function passesUntilRetry(draftMs: number, passMs: number): number {
  const passes = Math.ceil(draftMs / (RETRY_SHARE * passMs));
  return Math.min(MOST_UNTIL_RETRY, Math.max(LEAST_UNTIL_RETRY, passes));
}
