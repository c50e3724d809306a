/** Placement epochs: what a peer may say of them. */

const MILLISECONDS_2020 = Date.UTC(2020, 0, 1);
const MILLISECONDS_2100 = Date.UTC(2100, 0, 1);
const EPOCHS_PER_MILLISECOND = 1024;

/**
 * No main begins above it, whatever its clock shows, and none goes above an epoch that a peer has seen and that is greater: so a peer's word
 * cannot use up the numbers. It does not depend on anybody's clock, as a machine without one begins in 1970.
 */
export const PEER_EPOCH_LIMIT = (MILLISECONDS_2100 - MILLISECONDS_2020) * EPOCHS_PER_MILLISECOND;

/** The greatest epoch, and the greatest id of a sequence, that a message may name: a main at PEER_EPOCH_LIMIT goes on for a long time. */
export const EPOCH_LIMIT = PEER_EPOCH_LIMIT + 2 ** 50;

/**
 * The epoch a main starts from: grows over restarts, so that what a restarted main sends is newer than anything its predecessor sent.
 */
export function firstEpoch(nowMs: number): number {
  const epoch = Math.max(1, Math.floor(nowMs) - MILLISECONDS_2020) * EPOCHS_PER_MILLISECOND;
  return Math.min(epoch, PEER_EPOCH_LIMIT);
}

/** What a peer is told of the newest placement that a daemon has seen. 0: of none, or of one that a main would not go above. */
export function toldEpoch(highest: number): number {
  return highest <= PEER_EPOCH_LIMIT ? highest : 0;
}
