import { assignPredictedExperts } from '../../shared/placement/index.js';
import type { Placement, Prediction, Release } from '../../shared/rpc/messages.js';
import type { SequencePredictions } from './sequence-predictions.js';

/** What the router needs of a roster and its links. */
export interface ReleaseTargets {
  readonly placement: Placement | null;
  worker(id: string): { sendRelease(release: Release): void } | null;
}

/** Brings shadow's predictions to the sequences they are for. */
export class PredictionRouter {
  private readonly sequences = new Map<number, SequencePredictions>();

  constructor(private readonly targets: ReleaseTargets) {}

  open(sequence: number, predictions: SequencePredictions): void {
    this.sequences.set(sequence, predictions);
  }

  /** The sequence has ended: no worker need load or keep anything for it, also what shadow is still telling them. */
  close(sequence: number): void {
    this.sequences.delete(sequence);
    const placement = this.targets.placement;
    if (placement === null) return;
    for (const { id } of placement.workers) {
      this.targets.worker(id)?.sendRelease({ epoch: placement.epoch, sequence, position: 0, layer: 0, experts: [] });
    }
  }

  arrive(prediction: Prediction): void {
    const arrival = this.sequences.get(prediction.sequence)?.arrive(prediction);
    if (arrival === 'late') this.release(prediction);
  }

  /**
   * A late prediction's experts are not asked for at the workers that shadow has told to load them: no slot is to wait for them.
   * Of another epoch there is nothing to release: a worker forgets what it was told under an older placement.
   */
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
