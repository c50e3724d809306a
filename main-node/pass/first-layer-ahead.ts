import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { firstLayerWorkers } from '../../shared/decisions/placement/first-layer-workers.js';
import type { Placement, Predict } from '../../shared/wire/messages.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import { announcedByPrediction } from './announced-by-prediction.js';

const FIRST_LAYER = 0;

/**
 * The first layer of the next token, loaded before its token is known: towards the end of a token workers have nothing left to
 * load, and with an expert of the first layer in each of them the next token need not wait for any (docs/architecture.md). A worker is
 * told as soon as all predictions of the token are there and none is left for it, since its only slot may be needed until then.
 * Used where experts are spread over all workers and shadow does not run ahead.
 */
export class FirstLayerAhead {
  private told: { placement: Placement; position: number; workers: Map<number, string> } | null = null;

  /** `lastPosition`: the last that this answer can run. */
  constructor(
    private readonly sequence: number,
    private readonly lastPosition: number,
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
  ) {}

  /**
   * The router of a layer has chosen for the token at `position`. `upcoming`: the predictions for all layers behind it; null: some are not
   * there.
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
   * A pass of the sequence begins. `position`: of its first row, where it runs rows of this answer and nothing else; null: it does not. Only
   * a pass of the very name asks for what was told: the rows of a sequence whose memory was given back come in chunks of other names, and
   * those of several sequences in a joint pass. Everything told for another pass is released.
   */
  passBegins(position: number | null): void {
    const { told } = this;
    if (told === null || told.position === position) return;
    this.told = null;
    const { placement, workers } = told;
    // Under another placement the workers have forgotten it.
    if (this.workers.placement?.epoch !== placement.epoch) return;
    for (const [worker, experts] of expertsByWorker(workers))
      this.workers.worker(worker)?.sendRelease({
        epoch: placement.epoch,
        ...passOfSequence(this.sequence, told.position, 1),
        layer: FIRST_LAYER,
        experts,
      });
  }

  /** Who has been told of which expert for the first layer at `position` under this placement. */
  toldFor(placement: Placement, position: number): ReadonlyMap<number, string> {
    const told = this.told;
    return told?.position === position && told.placement.epoch === placement.epoch ? told.workers : new Map();
  }

  /** The same, once the router of that layer has chosen; nobody has been told of anything from now on. */
  take(placement: Placement, position: number): ReadonlyMap<number, string> {
    const workers = this.toldFor(placement, position);
    if (workers.size > 0) this.told = null;
    return workers;
  }
}
