import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { MemberRows } from './pass-member.js';
import type { OwnPredictions } from './tell-predicted.js';
import { decodePosition, expectedBy } from './announced-passes.js';

/**
 * Returns `count` distinct experts of `experts`, or all if there are fewer. They follow from (sequence, position, layer) alone. All sets are equally
 * likely.
 */
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
 * The ablation of OD-MoE figure 8, in which nothing is predicted: as soon as a group has run its layer, it loads random experts for its next layer,
 * `groups` layers ahead, in the next token if need be. An instance serves one pass.
 */
export class RandomPrefetch {
  constructor(
    private readonly workers: Pick<PlacedWorkers, 'placement'>,
    private readonly members: readonly MemberRows[],
    private readonly own: OwnPredictions,
  ) {}

  /** Before the first layer: loads each group's first layer, unless this was announced in the token before. */
  begin(): void {
    for (let layer = 0; layer < this.groups; layer++)
      this.tell(
        layer,
        this.members.filter((rows) => expectedBy(rows, layer) === null),
      );
  }

  layerDone(layer: number): void {
    this.tell(layer + this.groups, this.members);
  }

  private get groups(): number {
    return this.workers.placement?.groups.length ?? 0;
  }

  /** `layer` may lie in a later token. */
  private tell(layer: number, members: readonly MemberRows[]): void {
    const { placement } = this.workers;
    if (placement === null) return;
    const { layers, experts, expertsPerToken } = placement;
    const predictions = members.flatMap((rows) => {
      const first = decodePosition(rows);
      if (first === null) return [];
      const position = first + Math.floor(layer / layers);
      if (position > rows.member.lastPosition) return [];
      const place = { sequence: rows.member.id, position, layer: layer % layers };
      return [
        { rows, position, layer: place.layer, experts: randomExperts(place, { layers, experts }, expertsPerToken) },
      ];
    });
    this.own.tell(placement, predictions);
  }
}
