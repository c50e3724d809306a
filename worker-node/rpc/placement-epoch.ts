import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { PEER_EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import type { Predict, Restart } from '../../shared/wire/messages.js';

/** Predictions that may wait for their placement; beyond this number the oldest is dropped. */
export const MAX_EARLY_PREDICTIONS = 256;

/**
 * The placement epoch that main published last; 0 before the first. Shadow may get a placement before this worker does: its predictions for a
 * newer epoch wait here until main publishes that placement.
 */
export class PlacementEpoch {
  private epoch = 0;
  #highest = 0;
  private early: Predict[] = [];
  #staleMessages = 0;
  #droppedPredictions = 0;

  get current(): number {
    return this.epoch;
  }

  /** The highest epoch of all placements, from any main. */
  get highest(): number {
    return this.#highest;
  }

  get staleMessages(): number {
    return this.#staleMessages;
  }

  get droppedPredictions(): number {
    return this.#droppedPredictions;
  }

  /** Number of predictions that wait for their placement. */
  get waiting(): number {
    return this.early.length;
  }

  /** Throws STALE_EPOCH, and counts it, when the message belongs to an earlier placement. */
  requireNotStale(epoch: number): void {
    const isOfFormerMain = this.epoch === 0 && this.#highest > 0 && epoch <= this.#highest;
    if (epoch >= this.epoch && !isOfFormerMain) return;
    this.#staleMessages += 1;
    throw new OdmoeError('STALE_EPOCH', `A message of placement epoch ${epoch} came under epoch ${this.#highest}.`);
  }

  /**
   * Checks the epoch of a placement. A new main does not go above an epoch beyond PEER_EPOCH_LIMIT (Roster.goAbove) that another main has left
   * here: so its first placement is accepted with any epoch. Throws STALE_EPOCH, and counts it, for a placement older than the known one.
   */
  requireAnnounceable(epoch: number): void {
    if (this.epoch === 0 && this.#highest > PEER_EPOCH_LIMIT) return;
    this.requireNotStale(epoch);
  }

  /** Checks a message of main, which sends a placement before the messages that belong to it. Throws STALE_EPOCH or PROTOCOL_VIOLATION. */
  requireCurrent(epoch: number): void {
    this.requireNotStale(epoch);
    if (epoch > this.epoch || epoch === 0) {
      throw new OdmoeError(
        'PROTOCOL_VIOLATION',
        `A message of placement epoch ${epoch} came before that placement; the last one announced is ${this.epoch}.`,
      );
    }
  }

  /** True: act on it now. False: it waits for its placement. Throws STALE_EPOCH. */
  admit(prediction: Predict): boolean {
    this.requireNotStale(prediction.epoch);
    if (prediction.epoch === this.epoch && this.epoch > 0) return true;
    this.early.push(prediction);
    if (this.early.length > MAX_EARLY_PREDICTIONS) this.#droppedPredictions += this.early.shift()?.experts.length ?? 0;
    return false;
  }

  /**
   * True: act on it now. False: it only voids predictions that wait; predictions under an earlier placement become void anyway when the new one
   * comes. Throws STALE_EPOCH.
   */
  admitRestart(restart: Restart): boolean {
    this.requireNotStale(restart.epoch);
    if (restart.epoch === this.epoch && this.epoch > 0) return true;
    this.early = this.early.filter((waiting) => !voids(restart, waiting));
    return false;
  }

  /** Adopts a newer placement; returns the predictions that waited for it. Predictions for earlier placements are dropped. */
  advance(epoch: number): Predict[] {
    this.epoch = epoch;
    if (epoch < this.#highest) this.dropEarly();
    this.#highest = epoch;
    const due = this.early.filter((prediction) => prediction.epoch === epoch);
    const stale = this.early.filter((prediction) => prediction.epoch < epoch);
    this.#droppedPredictions += stale.reduce((sum, prediction) => sum + prediction.experts.length, 0);
    this.early = this.early.filter((prediction) => prediction.epoch > epoch);
    return due;
  }

  /** The sequence has ended: drops its waiting predictions. */
  forget(sequence: number): void {
    this.early = this.early.filter(({ pass }) => pass.sequence !== sequence);
  }

  /** Drops predictions for placements that no main will publish any more. */
  private dropEarly(): void {
    this.#droppedPredictions += this.early.reduce((sum, { experts }) => sum + experts.length, 0);
    this.early = [];
  }

  /** Main is gone; the next main, or the same one when it comes back, publishes a newer placement. */
  reset(): void {
    this.epoch = 0;
  }
}

function voids(from: Restart, { pass }: Predict): boolean {
  return pass.sequence === from.sequence && pass.position >= from.position;
}
