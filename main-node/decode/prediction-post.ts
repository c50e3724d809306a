import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import type { DraftToken, Predict, PrefixKept, Restart } from '../../shared/wire/messages.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { SequenceDrafting } from './sequence-drafting.js';
import type { SequencePredictions } from './sequence-predictions.js';
import type { FedShadow, AlignmentSender } from './alignment-sender.js';
import { announcedByPrediction, type AnnouncedPasses } from '../pass/announcements.js';
import type { PassObserver } from '../pass/pass-observer.js';

interface Addressee {
  predictions: Pick<SequencePredictions, 'arrive' | 'restart'>;
  feed: Pick<AlignmentSender, 'dropped' | 'forget' | 'isFedBy' | 'prefixKept'>;
  drafts: Pick<SequenceDrafting, 'arrive' | 'restart' | 'shadowLost'>;
}

/** Delivers shadow's messages, above all its predictions, to the sequences that they are about. */
export class PredictionPost {
  private readonly sequences = new Map<number, Addressee>();

  constructor(
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker' | 'endSequence'>,
    private readonly passes: Pick<AnnouncedPasses, 'arrived'>,
    private readonly observer: Pick<PassObserver, 'predictionArrived' | 'sequenceEnded'> | null = null,
  ) {}

  /** Number of open sequences. */
  get openCount(): number {
    return this.sequences.size;
  }

  open(sequence: number, addressee: Addressee): void {
    this.sequences.set(sequence, addressee);
  }

  /** The sequence has ended: workers need not load or hold anything for it any more, including experts that shadow is still announcing. */
  close(sequence: number): void {
    this.sequences.delete(sequence);
    this.observer?.sequenceEnded(sequence);
    this.workers.endSequence(sequence);
  }

  /**
   * A message from a shadow that has dropped the sequence, or has been replaced, voids nothing of the shadow that follows it now. Experts that this
   * message announced to workers are released.
   */
  arrive(prediction: Predict, by: FedShadow): void {
    const addressee = this.sequences.get(prediction.pass.sequence);
    if (addressee === undefined) return;
    const isFed = addressee.feed.isFedBy(by);
    this.observer?.predictionArrived(prediction);
    const arrival = isFed ? addressee.predictions.arrive(prediction) : 'late';
    if (arrival === 'remembered' && prediction.mainAnnounces === true) this.passes.arrived(prediction);
    if (arrival === 'late') this.release(prediction);
  }

  /** A restart from a shadow that does not follow the sequence any more voids nothing. */
  restart({ sequence, position }: Restart, by: FedShadow): void {
    const addressee = this.sequences.get(sequence);
    if (addressee?.feed.isFedBy(by) !== true) return;
    addressee.predictions.restart(position);
    addressee.drafts.restart(position);
  }

  /** Ignores the drafts of a shadow that has dropped the sequence, or has been replaced: they depend on what that shadow knew of it. */
  draft(draft: DraftToken, by: FedShadow): void {
    const addressee = this.sequences.get(draft.sequence);
    if (addressee?.feed.isFedBy(by) === true) addressee.drafts.arrive(draft);
  }

  /** Ignores the reply if the sequence has ended or this shadow was not asked about it. Returns false if the reply cannot be true. */
  prefixKept({ sequence, positions }: PrefixKept, by: FedShadow): boolean {
    return this.sequences.get(sequence)?.feed.prefixKept(positions, by) ?? true;
  }

  /** This shadow does not follow the sequence any more. */
  dropped(sequence: number, by: FedShadow): void {
    const addressee = this.sequences.get(sequence);
    if (addressee?.feed.isFedBy(by) !== true) return;
    addressee.feed.dropped(by);
    addressee.drafts.shadowLost();
  }

  /** This shadow is not connected any more. */
  lost(by: FedShadow): void {
    for (const sequence of this.sequences.keys()) this.dropped(sequence, by);
  }

  /** This shadow is connected and not used any more: it drops the sequences that it follows. */
  drained(by: FedShadow): void {
    for (const { feed, drafts } of this.sequences.values()) {
      if (!feed.isFedBy(by)) continue;
      feed.forget();
      drafts.shadowLost();
    }
  }

  /**
   * Releases a late prediction's experts at the workers to which shadow has announced them: main will not ask for them there, and no slot is to wait
   * for them. A prediction of another epoch needs no release: a worker drops the announcements of an older placement.
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
