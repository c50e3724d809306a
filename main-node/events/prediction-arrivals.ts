import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { PredictionArrival } from './pass-record.js';

/** Predictions that wait for their pass; of more, those of the sequence that was predicted for first go. */
export const MAX_WAITING_PREDICTIONS = 8192;

/** Predictions that have reached main, until the passes that they are for have ended. */
export class PredictionArrivals {
  private readonly bySequence = new Map<number, PredictionArrival[]>();
  private count = 0;

  add(arrival: PredictionArrival): void {
    const { sequence } = arrival;
    const before = this.bySequence.get(sequence);
    if (before === undefined) this.bySequence.set(sequence, [arrival]);
    else before.push(arrival);
    this.count += 1;
    while (this.count > MAX_WAITING_PREDICTIONS) this.forgetFirst();
  }

  /** Those for passes of the sequence that begin at positions from `first` on and before `end`; those for earlier ones are forgotten. */
  take(sequence: number, first: number, end: number): PredictionArrival[] {
    const waiting = this.bySequence.get(sequence) ?? [];
    const later = waiting.filter(({ position }) => position >= end);
    this.count -= waiting.length - later.length;
    if (later.length > 0) this.bySequence.set(sequence, later);
    else this.bySequence.delete(sequence);
    return waiting.filter(({ position }) => position >= first && position < end);
  }

  /** The sequence has ended: no pass comes for what is left of it. */
  forget(sequence: number): void {
    this.count -= this.bySequence.get(sequence)?.length ?? 0;
    this.bySequence.delete(sequence);
  }

  private forgetFirst(): void {
    const [first] = this.bySequence.keys();
    assertInvariant(first !== undefined, 'predictions that are counted belong to a sequence.');
    this.forget(first);
  }
}
