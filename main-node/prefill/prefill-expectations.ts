import { expertsByWorker, prefillAssignment } from '../../shared/placement/index.js';
import type { Placement, Prediction, Release } from '../../shared/rpc/messages.js';

/** What the expectations need of a roster and its links. */
export interface PredictionTargets {
  readonly placement: Placement | null;
  worker(id: string): { sendPrediction(prediction: Prediction): void; sendRelease(release: Release): void } | null;
}

interface Expectation {
  placement: Placement;
  position: number;
  layer: number;
}

/**
 * What a prefill has told the workers to load before a gate has spoken: every expert of a layer, at the workers that
 * the placement fixes for it, one layer ahead. What falls to them with no row is released.
 */
export class PrefillExpectations {
  private ahead: Expectation | null = null;

  constructor(
    private readonly sequence: number,
    private readonly targets: PredictionTargets,
  ) {}

  /** Tells the workers to expect this layer; `position` is that of the pass's last row. */
  announce(position: number, layer: number): void {
    const placement = this.targets.placement;
    if (placement === null) return;
    this.ahead = { placement, position, layer };
    for (const [workerId, experts] of expertsByWorker(prefillAssignment(placement, layer))) {
      const place = { epoch: placement.epoch, sequence: this.sequence, position, layer };
      const prediction = { ...place, experts, workers: [], restart: false };
      this.targets.worker(workerId)?.sendPrediction(prediction);
    }
  }

  /** The layer's gate has spoken and its batches go out: these experts need not be loaded where they were announced under this placement. */
  fulfil(placement: Placement, position: number, layer: number, unused: { workerId: string; expert: number }[]): void {
    const told = this.ahead;
    if (told?.position !== position || told.layer !== layer) return;
    this.ahead = null;
    if (told.placement.epoch !== placement.epoch) return;
    this.release(told, expertsByWorker(unused.map(({ workerId, expert }) => [expert, workerId])));
  }

  private release({ placement, position, layer }: Expectation, byWorker: ReadonlyMap<string, number[]>): void {
    if (this.targets.placement?.epoch !== placement.epoch) return;
    for (const [workerId, experts] of byWorker) {
      const release = { epoch: placement.epoch, sequence: this.sequence, position, layer, experts };
      this.targets.worker(workerId)?.sendRelease(release);
    }
  }
}
