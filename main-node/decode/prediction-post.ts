import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import type { DraftToken, Predict, PrefixKept, Restart } from '../../shared/wire/messages.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { SequenceDrafting } from './sequence-drafting.js';
import type { SequencePredictions } from './sequence-predictions.js';
import type { FedShadow, AlignmentSender } from './alignment-sender.js';
import { announcedByPrediction } from '../pass/announced-by-prediction.js';
import type { PassObserver } from '../pass/pass-observer.js';
import type { AnnouncedPasses } from '../pass/announced-passes.js';

interface Addressee {
  predictions: Pick<SequencePredictions, 'arrive' | 'restart'>;
  feed: Pick<AlignmentSender, 'dropped' | 'isFedBy' | 'prefixKept'>;
  drafts: Pick<SequenceDrafting, 'arrive' | 'restart' | 'shadowLost'>;
}

/** Brings what shadow says, its predictions above all, to the sequences it is about. */
export class PredictionPost {
  private readonly sequences = new Map<number, Addressee>();

  constructor(
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker' | 'endSequence'>,
    private readonly passes: Pick<AnnouncedPasses, 'arrived'>,
    private readonly observer: Pick<PassObserver, 'predictionArrived' | 'sequenceEnded'> | null = null,
  ) {}

  /** Sequences that are open. */
  get openCount(): number {
    return this.sequences.size;
  }

  open(sequence: number, addressee: Addressee): void {
    this.sequences.set(sequence, addressee);
  }

  /** The sequence has ended: no worker need load or keep anything for it, also what shadow is still telling them. */
  close(sequence: number): void {
    this.sequences.delete(sequence);
    this.observer?.sequenceEnded(sequence);
    this.workers.endSequence(sequence);
  }

  /**
   * What a shadow says that has dropped the sequence, or has been replaced, voids nothing of the one that follows it now; what it
   * has told workers to load is released.
   */
  arrive(prediction: Predict, by: FedShadow): void {
    const addressee = this.sequences.get(prediction.pass.sequence);
    if (addressee === undefined) return;
    const isFed = addressee.feed.isFedBy(by);
    this.observer?.predictionArrived(prediction);
    const arrival = isFed ? addressee.predictions.arrive(prediction) : 'late';
    if (arrival === 'kept' && prediction.mainAnnounces === true) this.passes.arrived(prediction);
    if (arrival === 'late') this.release(prediction);
  }

  /** Of a shadow that follows the sequence no longer it voids nothing. */
  restart({ sequence, position }: Restart, by: FedShadow): void {
    const addressee = this.sequences.get(sequence);
    if (addressee?.feed.isFedBy(by) !== true) return;
    addressee.predictions.restart(position);
    addressee.drafts.restart(position);
  }

  /** Drafts of a shadow that has dropped the sequence, or has been replaced, stand on what it knew of it. */
  draft(draft: DraftToken, by: FedShadow): void {
    const addressee = this.sequences.get(draft.sequence);
    if (addressee?.feed.isFedBy(by) === true) addressee.drafts.arrive(draft);
  }

  /** Of a sequence that has ended, or that this shadow was not asked about, nobody wants to know. False: it cannot be. */
  prefixKept({ sequence, positions }: PrefixKept, by: FedShadow): boolean {
    return this.sequences.get(sequence)?.feed.prefixKept(positions, by) ?? true;
  }

  /** That shadow follows the sequence no longer. */
  dropped(sequence: number, by: FedShadow): void {
    const addressee = this.sequences.get(sequence);
    if (addressee?.feed.isFedBy(by) !== true) return;
    addressee.feed.dropped(by);
    addressee.drafts.shadowLost();
  }

  /** That shadow is gone. */
  lost(by: FedShadow): void {
    for (const sequence of this.sequences.keys()) this.dropped(sequence, by);
  }

  /**
   * A late prediction's experts are not asked for at the workers that shadow has told to load them: no slot is to wait for them.
   * Of another epoch there is nothing to release: a worker forgets what it was told under an older placement.
   */
  private release(prediction: Predict): void {
    const { epoch, pass, rows, layer } = prediction;
    const { placement } = this.workers;
    if (placement === null) return;
    for (const [workerId, experts] of expertsByWorker(announcedByPrediction(placement, prediction) ?? [])) {
      this.workers.worker(workerId)?.sendRelease({ epoch, pass, rows, layer, experts });
    }
  }
}
