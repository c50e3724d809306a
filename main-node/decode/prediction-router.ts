import { assignPredictedExperts } from '../../shared/placement/index.js';
import type { Placement, Prediction, Release } from '../../shared/rpc/messages.js';
import type { SequencePredictions } from './sequence-predictions.js';

/** What the router needs of a roster and its links. */
export interface ReleaseTargets {
  readonly placement: Placement | null;
  worker(id: string): { sendRelease(release: Release): void } | null;
}

/**
 * Brings shadow's predictions to the sequences they are for. What main cannot use (late, doubled, of a sequence that has
 * ended) is released at the workers that shadow has told to load it, so that no slot waits for an execute that never comes.
 */
export class PredictionRouter {
  private readonly sequences = new Map<number, SequencePredictions>();

  constructor(private readonly targets: ReleaseTargets) {}

  open(sequence: number, predictions: SequencePredictions): void {
    this.sequences.set(sequence, predictions);
  }

  /** The sequence has ended: releases what it had been promised. */
  close(sequence: number): void {
    const left = this.sequences.get(sequence)?.takeKept() ?? [];
    this.sequences.delete(sequence);
    for (const prediction of left) this.release(prediction);
  }

  arrive(prediction: Prediction): void {
    const arrival = this.sequences.get(prediction.sequence)?.arrive(prediction) ?? 'unusable';
    if (arrival !== 'kept') this.release(prediction);
  }

  /** Of another epoch there is nothing to release: a worker forgets what it was told under an older placement. */
  private release(prediction: Prediction): void {
    const { epoch, sequence, position, layer } = prediction;
    const placement = this.targets.placement;
    if (placement?.epoch !== epoch) return;
    const byWorker = new Map<string, number[]>();
    for (const [expert, workerId] of assignPredictedExperts(placement, layer, position, prediction.experts)) {
      byWorker.set(workerId, [...(byWorker.get(workerId) ?? []), expert]);
    }
    for (const [workerId, experts] of byWorker) {
      this.targets.worker(workerId)?.sendRelease({ epoch, sequence, position, layer, experts });
    }
  }
}
