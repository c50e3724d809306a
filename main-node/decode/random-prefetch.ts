import { requirePresent } from '../../shared/errors/assert-invariant.js';
import { passOfSequence } from '../../shared/rpc/pass-rows.js';
import { counterRandom } from '../../shared/sampling/counter-random.js';
import { tellPredicted, type PredictionTargets } from './tell-predicted.js';

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
  /** `lastPosition`: the last that this answer can run. */
  constructor(
    private readonly sequence: number,
    private readonly lastPosition: number,
    private readonly targets: PredictionTargets,
  ) {}

  /** Before the first token: each group's first layer. */
  begin(position: number): void {
    const groups = this.targets.workers.placement?.groups.length ?? 0;
    for (let layer = 0; layer < groups; layer++) this.tell(position, layer);
  }

  layerDone(position: number, layer: number): void {
    this.tell(position, layer + (this.targets.workers.placement?.groups.length ?? 0));
  }

  /** `layer` may lie in a later token than that of `position`. */
  private tell(position: number, layer: number): void {
    const { placement } = this.targets.workers;
    if (placement === null) return;
    const { layers, experts, expertsPerToken } = placement;
    const place = {
      sequence: this.sequence,
      position: position + Math.floor(layer / layers),
      layer: layer % layers,
    };
    if (place.position > this.lastPosition) return;
    const chosen = randomExperts(place, { layers, experts }, expertsPerToken);
    const rows = passOfSequence(place.sequence, place.position, 1);
    tellPredicted(this.targets, placement, { ...rows, layer: place.layer }, chosen);
  }
}
