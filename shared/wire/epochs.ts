/** Placement epochs, and limits of the epochs that a peer may send. */

const MILLISECONDS_2020 = Date.UTC(2020, 0, 1);
const MILLISECONDS_2100 = Date.UTC(2100, 0, 1);
const EPOCHS_PER_MILLISECOND = 1024;

/**
 * Greatest first epoch of a main, whatever its clock shows. A main also ignores an epoch above it that a peer reports. So a peer cannot use up
 * the numbers. The limit does not depend on any clock, because a machine without one begins in 1970.
 */
export const PEER_EPOCH_LIMIT = (MILLISECONDS_2100 - MILLISECONDS_2020) * EPOCHS_PER_MILLISECOND;

/** The greatest epoch, and the greatest id of a sequence, in a message. A main that starts at PEER_EPOCH_LIMIT can still count for a long time. */
export const EPOCH_LIMIT = PEER_EPOCH_LIMIT + 2 ** 50;

/** The first epoch of a main. It grows over restarts, so that messages of a restarted main are newer than those of its predecessor. */
export function firstEpoch(nowMs: number): number {
  const epoch = Math.max(1, Math.floor(nowMs) - MILLISECONDS_2020) * EPOCHS_PER_MILLISECOND;
  return Math.min(epoch, PEER_EPOCH_LIMIT);
}

/**
 * The epoch that a daemon reports to a peer for the newest placement that it has seen. 0: it has seen none, or its epoch is too great for a main
 * to exceed.
 */
export function reportedEpoch(highest: number): number {
  return highest <= PEER_EPOCH_LIMIT ? highest : 0;
}
