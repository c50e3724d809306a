import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { ExpertDealer, REMEMBERED_PASSES } from '../../shared/decisions/placement/expert-dealer.js';
import { firstLayerWorkers } from '../../shared/decisions/placement/first-layer-workers.js';
import type { Placement, WorkerKept } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import type { PassPrediction } from '../predictor/pass-predictions.js';

/** Main's settings for the dealing of a sequence's experts (BeginSequence). */
export interface SequenceDealing {
  spread: boolean;
  optimistic: boolean;
}

/** Most passes whose place in the dealer's order is remembered, over all sequences. */
const MAX_PASSES = 64 * REMEMBERED_PASSES;

/**
 * Deals the experts that shadow predicts to all workers of one placement. All sequences share the workers, so their passes are counted together, in
 * the order in which shadow begins to predict them.
 */
export class PredictionDealer {
  private readonly dealer: ExpertDealer;
  /** expert of the first layer -> place of the worker that loads it ahead. */
  private readonly firstLayer: ReadonlyMap<number, number>;
  /** "sequence position" -> index of the pass. */
  private readonly passes = new RecentMap<string, { sequence: number; position: number; index: number }>(MAX_PASSES);
  private nextPass = 0;
  /** For each layer: the experts that a worker caches, by the worker's place. */
  private readonly cached: Map<number, ReadonlySet<number>>[];

  constructor(private readonly placement: Placement) {
    this.dealer = new ExpertDealer(placement.workers.length, placement.layers);
    this.cached = Array.from({ length: placement.layers }, () => new Map<number, ReadonlySet<number>>());
    const places = new Map(placement.workers.map(({ id }, place) => [id, place]));
    const placeOf = (id: string): number => requirePresent(places.get(id), () => `worker ${id} has a place.`);
    this.firstLayer = new Map([...firstLayerWorkers(placement)].map(([expert, id]) => [expert, placeOf(id)]));
  }

  /** Number of remembered passes, and of experts that workers are assumed to hold for them. */
  get openCount(): number {
    return this.passes.size + this.dealer.openCount;
  }

  /**
   * Places in the placement's list of workers, one for each of the prediction's experts; empty: the layer's group has them. If main has workers load
   * experts of the first layer ahead, these stay with the workers that main chose.
   */
  deal(sequence: number, { spread, optimistic }: SequenceDealing, prediction: PassPrediction): number[] {
    if (!spread) return [];
    const { position, rows, layer, experts } = prediction;
    const ordinal = this.passIndex(sequence, position) * this.placement.layers + layer;
    if (layer === 0 && rows === 1 && !optimistic) {
      for (const expert of experts) {
        const place = this.firstLayer.get(expert);
        if (place !== undefined) this.dealer.give(ordinal, expert, place);
      }
    }
    const cached = [...(this.cached[layer] ?? [])];
    return this.dealer.deal(ordinal, experts, (expert) =>
      cached.flatMap(([place, has]) => (has.has(expert) ? [place] : [])),
    );
  }

  /** Workers cache these experts of layers, and no others there. Reports that name no worker or layer of the placement are ignored. */
  noteCached(news: readonly WorkerKept[]): void {
    for (const { worker, layer, experts } of news)
      if (worker < this.placement.workers.length) this.cached[layer]?.set(worker, new Set(experts));
  }

  /** Forgets the sequence's passes from `position` on, which are not run after all. */
  forget(sequence: number, position: number): void {
    const { layers } = this.placement;
    for (const [key, pass] of this.passes) {
      if (pass.sequence !== sequence || pass.position < position) continue;
      this.passes.delete(key);
      this.dealer.forget(pass.index * layers, (pass.index + 1) * layers);
    }
  }

  private passIndex(sequence: number, position: number): number {
    return this.passes.of(`${sequence} ${position}`, () => ({ sequence, position, index: this.nextPass++ })).index;
  }
}
