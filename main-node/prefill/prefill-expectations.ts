import { expertsByWorker } from '../../shared/placement/experts-by-worker.js';
import { prefillAssignment, usesNearlyAllExperts } from '../../shared/placement/prefill-workers.js';
import type { PassLayer, Placement } from '../../shared/rpc/messages.js';
import { rowCount } from '../../shared/rpc/pass-rows.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { ExpertBatchPlan } from './expert-batches.js';

/**
 * What a prefill tells the workers to load, at the workers that the placement fixes for it. Where a pass is expected to use nearly all
 * experts: every expert of a layer, one layer ahead, before its router has chosen; what falls to them with no row is released. Else, and
 * where the placement has changed meanwhile: what rows use, as soon as the router has chosen.
 */
export class PrefillExpectations {
  private ahead: { placement: Placement; here: PassLayer } | null = null;

  constructor(private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>) {}

  /** Before the router of this layer of the pass has chosen. */
  announce({ pass, rows, layer }: PassLayer): void {
    const { placement } = this.workers;
    if (placement === null || !usesNearlyAllExperts(placement, rowCount(rows))) return;
    const here = { pass, rows, layer };
    this.ahead = { placement, here };
    this.tell(placement, here, prefillAssignment(placement, layer));
  }

  /** The layer's router has chosen, and its batches, planned under this placement, are about to go out. */
  fulfil(placement: Placement, { pass, rows, layer }: PassLayer, { batches, unused }: ExpertBatchPlan): void {
    const here = { pass, rows, layer };
    const told = this.ahead;
    const isAnnounced = told?.here.pass.position === pass.position && told.here.layer === layer;
    if (isAnnounced) this.ahead = null;
    const { epoch } = placement;
    if (this.workers.placement?.epoch !== epoch) return;
    if (!isAnnounced || told.placement.epoch !== epoch) {
      const used = new Map(
        batches.map(({ expert, workerId }) => [`${expert} ${workerId}`, [expert, workerId] as const]),
      );
      this.tell(placement, here, used.values());
      return;
    }
    for (const [workerId, experts] of expertsByWorker(unused.map(({ workerId, expert }) => [expert, workerId]))) {
      this.workers.worker(workerId)?.sendRelease({ epoch, ...here, experts });
    }
  }

  private tell(
    { epoch }: Placement,
    here: PassLayer,
    assignment: Iterable<readonly [expert: number, workerId: string]>,
  ): void {
    for (const [workerId, experts] of expertsByWorker(assignment)) {
      this.workers.worker(workerId)?.sendPrediction({ epoch, ...here, experts, workers: [], restart: false });
    }
  }
}
