import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { firstLayerWorkers } from '../../shared/decisions/placement/first-layer-workers.js';
import type { Placement, Predict } from '../../shared/wire/messages.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import { announcedByPrediction } from './announced-by-prediction.js';

const FIRST_LAYER = 0;

/**
 * Loads the first layer of the next token before that token is known. Towards the end of a token workers have nothing left to load. If each of them
 * then loads an expert of the first layer, the next token need not wait for any (docs/architecture.md). An expert is announced to a worker as soon as
 * all predictions of the token are there and none of them is left for this worker, since its only slot may be needed until then. Used where experts
 * are spread over all workers and shadow does not run ahead.
 */
export class FirstLayerAhead {
  private told: { placement: Placement; position: number; workers: Map<number, string> } | null = null;

  /** `lastPosition`: the last position that this answer can run. */
  constructor(
    private readonly sequence: number,
    private readonly lastPosition: number,
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
  ) {}

  /**
   * The router of a layer has chosen for the token at `position`. `upcoming`: the predictions for all later layers; null: some of them have not come.
   */
  afterRouter(position: number, upcoming: readonly Predict[] | null): void {
    const { placement } = this.workers;
    if (placement === null || upcoming === null || position >= this.lastPosition) return;
    const next = position + 1;
    if (this.told?.position !== next || this.told.placement.epoch !== placement.epoch) {
      this.told = { placement, position: next, workers: new Map() };
    }
    const busy = new Set(
      upcoming.flatMap((prediction) => [...(announcedByPrediction(placement, prediction)?.values() ?? [])]),
    );
    for (const [expert, workerId] of firstLayerWorkers(placement)) {
      if (busy.has(workerId) || this.told.workers.has(expert)) continue;
      this.told.workers.set(expert, workerId);
      this.workers.worker(workerId)?.sendAnnounce({
        epoch: placement.epoch,
        ...passOfSequence(this.sequence, next, 1),
        layer: FIRST_LAYER,
        experts: [expert],
      });
    }
  }

  /**
   * A pass of the sequence begins. `position`: that of its first row, if it runs rows of this answer and nothing else; null: it does not. Only a pass
   * of exactly this sequence and position asks for the announced experts: the rows of a preempted sequence come in chunks of other names, and those
   * of several sequences in a joint pass. All experts that were announced for another pass are released.
   */
  passBegins(position: number | null): void {
    const { told } = this;
    if (told === null || told.position === position) return;
    this.told = null;
    const { placement, workers } = told;
    // Under another placement the workers have dropped these announcements.
    if (this.workers.placement?.epoch !== placement.epoch) return;
    for (const [worker, experts] of expertsByWorker(workers))
      this.workers.worker(worker)?.sendRelease({
        epoch: placement.epoch,
        ...passOfSequence(this.sequence, told.position, 1),
        layer: FIRST_LAYER,
        experts,
      });
  }

  /** expert -> worker: the announcements for the first layer at `position` under this placement. */
  toldFor(placement: Placement, position: number): ReadonlyMap<number, string> {
    const told = this.told;
    return told?.position === position && told.placement.epoch === placement.epoch ? told.workers : new Map();
  }

  /** Returns the same map once that layer's router has chosen, and drops it: from now on nothing is announced. */
  take(placement: Placement, position: number): ReadonlyMap<number, string> {
    const workers = this.toldFor(placement, position);
    if (workers.size > 0) this.told = null;
    return workers;
  }
}
