import { timesPowerOfTwo } from '../../shared/base/arithmetic/elementary.js';

/** Most failures in a row before a request is given up. */
export const TRIES_LIMIT = 6;
/** Longest wait that the hub may ask for; if it asks for more, the work ends with words. */
export const LONGEST_ASKED_MS = 10 * 60 * 1000;

const FIRST_PAUSE_MS = 1000;
const LAST_PAUSE_MS = 30_000;

/** Pause before the next try, after `failures` failures in a row; without a wish of the hub it doubles, and half of it is chance. Pure. */
export function retryPauseMs(failures: number, askedMs: number | null, fraction: number): number {
  if (askedMs !== null) return askedMs;
  const pauseMs = Math.min(LAST_PAUSE_MS, timesPowerOfTwo(FIRST_PAUSE_MS, failures - 1));
  return Math.round((pauseMs * (1 + fraction)) / 2);
}

/**
 * The wait that an answer asks for, in milliseconds: Retry-After in seconds or as a date, or the rest of the window of the hub's own RateLimit
 * header (`"api";r=0;t=55`). Null: none. Pure.
 */
export function askedPauseMs(retryAfter: string | null, rateLimit: string | null, wallMs: number): number | null {
  if (retryAfter !== null && /^\d{1,9}$/.test(retryAfter.trim())) return Number(retryAfter) * 1000;
  const at = retryAfter?.endsWith('GMT') === true ? Date.parse(retryAfter) : NaN;
  if (!Number.isNaN(at)) return Math.max(0, at - wallMs);
  const seconds = /(?:^|;)\s*t=(\d{1,9})\b/.exec(rateLimit ?? '')?.[1];
  return seconds === undefined ? null : Number(seconds) * 1000;
}
