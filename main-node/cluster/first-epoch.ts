const MILLISECONDS_2020 = Date.UTC(2020, 0, 1);
const EPOCHS_PER_SECOND = 65_536;

/**
 * The epoch a main starts from: grows over restarts, so that what a restarted main sends is newer than anything its
 * predecessor sent. Stays a safe integer until the year 6300.
 */
export function firstEpoch(nowMs: number): number {
  return Math.max(1, Math.floor((nowMs - MILLISECONDS_2020) / 1000)) * EPOCHS_PER_SECOND;
}
