import { expertsByWorker } from '../../shared/placement/index.js';
import type { DraftToken, Placement, Prediction, Release } from '../../shared/rpc/messages.js';
import type { SequenceDrafting } from './sequence-drafting.js';
import type { SequencePredictions } from './sequence-predictions.js';
import type { FedShadow, ShadowFeed } from './shadow-feed.js';
import { toldByPrediction } from './told-by-prediction.js';

/** What the router needs of a roster and its links. */
export interface ReleaseTargets {
  readonly placement: Placement | null;
  worker(id: string): { sendRelease(release: Release): void } | null;
}

interface RoutedSequence {
  predictions: Pick<SequencePredictions, 'arrive' | 'restart'>;
  feed: Pick<ShadowFeed, 'dropped' | 'isFedBy'>;
  drafts: Pick<SequenceDrafting, 'arrive' | 'restart' | 'shadowLost'>;
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

  /**
   * What a shadow says that has dropped the sequence, or has been replaced, voids nothing of the one that follows it now; what it
   * has told workers to load is released.
   */
  arrive(prediction: Prediction, by: FedShadow): void {
    const routed = this.sequences.get(prediction.sequence);
    if (routed === undefined) return;
    const isFed = routed.feed.isFedBy(by);
    if (prediction.restart) {
      if (!isFed) return;
      routed.predictions.restart(prediction.position);
      routed.drafts.restart(prediction.position);
      return;
    }
    if (!isFed || routed.predictions.arrive(prediction) === 'late') this.release(prediction);
  }

  /** Drafts of a shadow that has dropped the sequence, or has been replaced, stand on what it knew of it. */
  draft(draft: DraftToken, by: FedShadow): void {
    const routed = this.sequences.get(draft.sequence);
    if (routed?.feed.isFedBy(by) === true) routed.drafts.arrive(draft);
  }

  /** That shadow follows the sequence no longer. */
  dropped(sequence: number, by: FedShadow): void {
    const routed = this.sequences.get(sequence);
    if (routed?.feed.isFedBy(by) !== true) return;
    routed.feed.dropped(by);
    routed.drafts.shadowLost();
  }

  /** That shadow is gone. */
  lost(by: FedShadow): void {
    for (const sequence of this.sequences.keys()) this.dropped(sequence, by);
  }

  /**
   * A late prediction's experts are not asked for at the workers that shadow has told to load them: no slot is to wait for them.
   * Of another epoch there is nothing to release: a worker forgets what it was told under an older placement.
   */
  private release(prediction: Prediction): void {
    const { epoch, sequence, position, layer } = prediction;
    const placement = this.targets.placement;
    if (placement === null) return;
    for (const [workerId, experts] of expertsByWorker(toldByPrediction(placement, prediction) ?? [])) {
      this.targets.worker(workerId)?.sendRelease({ epoch, sequence, position, layer, experts });
    }
  }
}
