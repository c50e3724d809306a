import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { ExpertDealer, REMEMBERED_PASSES } from '../../shared/decisions/placement/expert-dealer.js';
import { firstLayerWorkers } from '../../shared/decisions/placement/first-layer-workers.js';
import type { Placement, WorkerKept } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import type { PassPrediction } from '../predictor/pass-predictions.js';

/** How main wants a sequence's experts dealt (BeginSequence). */
export interface SequenceDealing {
  spread: boolean;
  optimistic: boolean;
}

/** Passes whose place in the dealer's order is remembered, over all sequences. */
const MAX_PASSES = 64 * REMEMBERED_PASSES;

/**
 * Deals the experts that shadow predicts to all workers of one placement. All sequences share the workers, so their passes are
 * counted together, in the order in which shadow comes to predict them.
 */
export class PredictionDealer {
  private readonly dealer: ExpertDealer;
  /** expert of the first layer -> place of the worker that loads it ahead. */
  private readonly firstLayer: ReadonlyMap<number, number>;
  /** "sequence position" -> index of the pass. */
  private readonly passes = new RecentMap<string, { sequence: number; position: number; index: number }>(MAX_PASSES);
  private nextPass = 0;
  /** Of each layer, by the worker's place. */
  private readonly kept: Map<number, ReadonlySet<number>>[];

  constructor(private readonly placement: Placement) {
    this.dealer = new ExpertDealer(placement.workers.length, placement.layers);
    this.kept = Array.from({ length: placement.layers }, () => new Map<number, ReadonlySet<number>>());
    const places = new Map(placement.workers.map(({ id }, place) => [id, place]));
    const placeOf = (id: string): number => requirePresent(places.get(id), () => `worker ${id} has a place.`);
    this.firstLayer = new Map([...firstLayerWorkers(placement)].map(([expert, id]) => [expert, placeOf(id)]));
  }

  /** Passes that are remembered, and experts that workers are taken to hold for them. */
  get openCount(): number {
    return this.passes.size + this.dealer.openCount;
  }

  /**
   * Places in the placement's list of workers, one for each of the prediction's experts; empty: the layer's group has them. Where
   * main has workers load the first layer's experts ahead, those stay with whom main told.
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
    const kept = [...(this.kept[layer] ?? [])];
    return this.dealer.deal(ordinal, experts, (expert) =>
      kept.flatMap(([place, has]) => (has.has(expert) ? [place] : [])),
    );
  }

  /** Workers keep these experts of layers, and no others of them. What names no worker or layer of the placement is passed over. */
  noteKept(news: readonly WorkerKept[]): void {
    for (const { worker, layer, experts } of news)
      if (worker < this.placement.workers.length) this.kept[layer]?.set(worker, new Set(experts));
  }

  /** The sequence's passes from `position` on are not run after all. */
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
