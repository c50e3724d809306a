const MILLISECONDS_2020 = Date.UTC(2020, 0, 1);
const EPOCHS_PER_MILLISECOND = 1024;

/**
 * The epoch a main starts from: grows over restarts, so that what a restarted main sends is newer than anything its
 * predecessor sent. Stays a safe integer until the year 2298.
 */
export function firstEpoch(nowMs: number): number {
  return Math.max(1, Math.floor(nowMs) - MILLISECONDS_2020) * EPOCHS_PER_MILLISECOND;
}
