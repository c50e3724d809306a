import { expertsByWorker } from '../../shared/placement/experts-by-worker.js';
import { prefillAssignment } from '../../shared/placement/prefill-workers.js';
import type { PassLayer, Placement } from '../../shared/rpc/messages.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';

/**
 * What a prefill has told the workers to load before a router has chosen: every expert of a layer, at the workers that
 * the placement fixes for it, one layer ahead. What falls to them with no row is released.
 */
export class PrefillExpectations {
  private ahead: { placement: Placement; here: PassLayer } | null = null;

  constructor(private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>) {}

  /** Tells the workers to expect this layer of the pass. */
  announce({ pass, rows, layer }: PassLayer): void {
    const { placement } = this.workers;
    if (placement === null) return;
    const here = { pass, rows, layer };
    this.ahead = { placement, here };
    const { epoch } = placement;
    for (const [workerId, experts] of expertsByWorker(prefillAssignment(placement, layer))) {
      this.workers.worker(workerId)?.sendPrediction({ epoch, ...here, experts, workers: [], restart: false });
    }
  }

  /** The layer's router has chosen and its batches go out: these experts need not be loaded where they were announced under this placement. */
  fulfil(
    { epoch }: Placement,
    { pass, layer }: PassLayer,
    unused: readonly { workerId: string; expert: number }[],
  ): void {
    const told = this.ahead;
    if (told?.here.pass.position !== pass.position || told.here.layer !== layer) return;
    this.ahead = null;
    if (told.placement.epoch !== epoch || this.workers.placement?.epoch !== epoch) return;
    for (const [workerId, experts] of expertsByWorker(unused.map(({ workerId, expert }) => [expert, workerId]))) {
      this.workers.worker(workerId)?.sendRelease({ epoch, ...told.here, experts });
    }
  }
}
