import { requirePresent } from '../../shared/errors/assert-invariant.js';
import { assignPredictedExperts } from '../../shared/placement/assign-predicted-experts.js';
import { expertsByWorker } from '../../shared/placement/experts-by-worker.js';
import type { Prediction } from '../../shared/rpc/messages.js';
import { passOfSequence } from '../../shared/rpc/pass-rows.js';
import { counterRandom } from '../../shared/sampling/counter-random.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';

/** `count` distinct experts of `experts`, by (sequence, position, layer) and nothing else; at most all. Each set is as likely as any other. */
export function randomExperts(
  place: { sequence: number; position: number; layer: number },
  shape: { layers: number; experts: number },
  count: number,
): number[] {
  const draws = Math.min(count, shape.experts);
  const first = (place.position * shape.layers + place.layer) * draws;
  const left = Array.from({ length: shape.experts }, (_, expert) => expert);
  return Array.from({ length: draws }, (_, draw) => {
    const index = Math.floor(counterRandom(place.sequence, first + draw) * left.length);
    return requirePresent(left.splice(index, 1)[0], 'fewer experts are drawn than there are.');
  });
}

/**
 * The ablation of OD-MoE figure 8 in which nothing is predicted: as soon as a group has run its layer, it loads random experts for its
 * next one, `groups` layers ahead, in the next token if need be.
 */
export class RandomPrefetch {
  /** `lastPosition`: the last that this answer can run. `onPrediction` is told what the workers are. */
  constructor(
    private readonly sequence: number,
    private readonly lastPosition: number,
    private readonly workers: Pick<PlacedWorkers, 'placement' | 'worker'>,
    private readonly onPrediction: (prediction: Prediction) => void,
  ) {}

  /** Before the first token: each group's first layer. */
  begin(position: number): void {
    const groups = this.workers.placement?.groups.length ?? 0;
    for (let layer = 0; layer < groups; layer++) this.tell(position, layer);
  }

  layerDone(position: number, layer: number): void {
    this.tell(position, layer + (this.workers.placement?.groups.length ?? 0));
  }

  /** `layer` may lie in a later token than that of `position`. */
  private tell(position: number, layer: number): void {
    const { placement } = this.workers;
    if (placement === null) return;
    const { epoch, layers, experts, expertsPerToken } = placement;
    const place = {
      sequence: this.sequence,
      position: position + Math.floor(layer / layers),
      layer: layer % layers,
    };
    if (place.position > this.lastPosition) return;
    const chosen = randomExperts(place, { layers, experts }, expertsPerToken);
    const byWorker = expertsByWorker(assignPredictedExperts(placement, place.layer, chosen));
    const { pass, rows } = passOfSequence(place.sequence, place.position, 1);
    const prediction = { epoch, pass, rows, layer: place.layer, workers: [], restart: false };
    this.onPrediction({ ...prediction, experts: chosen });
    for (const [workerId, ofWorker] of byWorker) {
      this.workers.worker(workerId)?.sendPrediction({ ...prediction, experts: ofWorker });
    }
  }
}
