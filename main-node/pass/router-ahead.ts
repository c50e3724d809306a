import type { Pass } from '../../native/index.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { MemberRows } from './pass-member.js';
import type { OwnPredictions } from './tell-predicted.js';
import type { Announcements } from './announcements.js';
import { decodePosition } from './announced-passes.js';

/**
 * Expert layers whose routers are asked ahead once the router of `layer` has chosen. Each is asked once a pass: the one that is `layersAhead` further
 * on, and at the first layer also all layers before that one. The first layer itself is never asked ahead. Pure.
 */
export function layersAskedAt(layer: number, expertLayers: number, layersAhead: number): number[] {
  const first = layer === 0 ? 1 : layer + layersAhead;
  const last = Math.min(layer + layersAhead, expertLayers - 1);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => first + place);
}

/**
 * Predicts without a shadow: main's own router of a later layer chooses on the hidden state that the current layer has left, while the workers run
 * this layer's experts. For models whose shadow would be no smaller than the model, and for clusters with no machine to spare. An instance serves one
 * pass, for all rows of answers at once.
 */
export class RouterAhead {
  constructor(
    private readonly ahead: { expertLayers: number; layersAhead: number },
    private readonly workers: Pick<PlacedWorkers, 'placement'>,
    private readonly members: readonly MemberRows[],
    private readonly told: Pick<Announcements, 'isAnnounced'>,
    private readonly own: OwnPredictions,
  ) {}

  /** The router of the layer has chosen; its experts run. The pass has not combined yet. */
  async routerHasChosen(pass: Pick<Pass, 'chooseAhead'>, layer: number): Promise<void> {
    for (const asked of layersAskedAt(layer, this.ahead.expertLayers, this.ahead.layersAhead)) {
      const { placement } = this.workers;
      if (placement === null) return;
      if (this.told.isAnnounced(asked)) continue;
      const { experts } = await pass.chooseAhead(asked);
      let row = 0;
      const predictions = this.members.flatMap((rows) => {
        const [first, end] = [row + rows.decodeFrom, row + rows.tokenIds.length];
        row = end;
        const position = decodePosition(rows);
        if (position === null) return [];
        const chosen = experts.subarray(first * placement.expertsPerToken, end * placement.expertsPerToken);
        return [{ rows, position, layer: asked, experts: [...new Set(chosen)] }];
      });
      this.own.tell(placement, predictions);
    }
  }
}
