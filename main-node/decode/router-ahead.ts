import type { Pass } from '../../native/index.js';
import type { PassLayer } from '../../shared/rpc/messages.js';
import { tellPredicted, type PredictionTargets } from './tell-predicted.js';

/**
 * Expert layers whose routers are asked once the router of `layer` has chosen, each once a pass: the one so many layers further on, and at
 * the first layer all before it. None for the first layer itself. Pure.
 */
export function layersAskedAt(layer: number, expertLayers: number, layersAhead: number): number[] {
  const first = layer === 0 ? 1 : layer + layersAhead;
  const last = Math.min(layer + layersAhead, expertLayers - 1);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => first + place);
}

/**
 * Predictions without a shadow: main's own router of a layer further on chooses on the hidden state that the layer at hand has left,
 * while the workers run that layer's experts. For models whose shadow would be no smaller than the model, and for clusters with no box to
 * spare.
 */
export class RouterAhead {
  constructor(
    private readonly expertLayers: number,
    private readonly layersAhead: number,
    private readonly targets: PredictionTargets,
  ) {}

  /** The router of the layer has chosen; its experts run. The pass has not combined yet. */
  async routerHasChosen(pass: Pick<Pass, 'chooseAhead'>, { layer, ...place }: PassLayer): Promise<void> {
    for (const asked of layersAskedAt(layer, this.expertLayers, this.layersAhead)) {
      const { placement } = this.targets.workers;
      if (placement === null) return;
      const { experts } = await pass.chooseAhead(asked);
      const { pass: passRow, rows } = place;
      tellPredicted(this.targets, placement, { pass: passRow, rows, layer: asked }, [...new Set(experts)]);
    }
  }
}
