import { assignPredictedExperts } from '../../shared/placement/index.js';
import type { Placement, Prediction, Release } from '../../shared/rpc/messages.js';
import type { SequencePredictions } from './sequence-predictions.js';
import type { FedShadow, ShadowFeed } from './shadow-feed.js';

/** What the router needs of a roster and its links. */
export interface ReleaseTargets {
  readonly placement: Placement | null;
  worker(id: string): { sendRelease(release: Release): void } | null;
}

interface RoutedSequence {
  predictions: Pick<SequencePredictions, 'arrive'>;
  feed: Pick<ShadowFeed, 'dropped'>;
}

/** Brings what shadow says, its predictions above all, to the sequences it is about. */
export class PredictionRouter {
  private readonly sequences = new Map<number, RoutedSequence>();

  constructor(private readonly targets: ReleaseTargets) {}

  open(sequence: number, routed: RoutedSequence): void {
    this.sequences.set(sequence, routed);
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
    const arrival = this.sequences.get(prediction.sequence)?.predictions.arrive(prediction);
    if (arrival === 'late') this.release(prediction);
  }

  /** That shadow follows the sequence no longer. */
  dropped(sequence: number, by: FedShadow): void {
    this.sequences.get(sequence)?.feed.dropped(by);
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
    for (const [expert, workerId] of assignPredictedExperts(placement, layer, prediction.experts)) {
      byWorker.set(workerId, [...(byWorker.get(workerId) ?? []), expert]);
    }
    for (const [workerId, experts] of byWorker) {
      this.targets.worker(workerId)?.sendRelease({ epoch, sequence, position, layer, experts });
    }
  }
}
