import { assignPredictedExperts, ExpertDealer, firstLayerWorkers } from '../../shared/placement/index.js';
import type { Placement, Prediction } from '../../shared/rpc/messages.js';

/** What shadow has predicted, by pass and layer: the set of all rows so far, and who is to load it. */
export class PredictedSets {
  /** First position of the pass -> layer -> experts in order of first appearance. */
  readonly #sets = new Map<number, number[][]>();
  readonly #dealer: ExpertDealer;
  readonly #passIndex = new Map<number, number>();
  #nextIndex = 0;

  constructor(
    private readonly placement: Placement,
    private readonly sequence: number,
    private readonly spread: 'group' | 'all',
    /** Layer 0 is loaded ahead by what main tells. */
    private readonly firstLayerAhead: boolean,
  ) {
    this.#dealer = new ExpertDealer(placement.workers.length, placement.layers);
  }

  /** Adds a row's experts to the set; null where they were all in it. */
  add(pass: number, layer: number, experts: readonly number[]): Prediction | null {
    const layers = this.#layersOf(pass);
    const set = (layers[layer] ??= []);
    const fresh = experts.filter((expert) => !set.includes(expert));
    if (fresh.length === 0 && set.length > 0) return null;
    set.push(...fresh);
    return this.#prediction(pass, layer, set);
  }

  /** Takes back everything from a position on; returns the passes and layers that were predicted there. */
  forgetFrom(position: number): { position: number; layer: number }[] {
    const forgotten: { position: number; layer: number }[] = [];
    for (const [pass, layers] of [...this.#sets]) {
      if (pass < position) continue;
      layers.forEach((_, layer) => forgotten.push({ position: pass, layer }));
      this.#forgetPass(pass);
    }
    return forgotten;
  }

  /** Main is past these passes. */
  forgetBefore(position: number): void {
    for (const pass of [...this.#sets.keys()]) {
      if (pass < position) this.#sets.delete(pass);
    }
    for (const pass of [...this.#passIndex.keys()]) {
      if (pass < position) this.#passIndex.delete(pass);
    }
  }

  /** Who loads what of a prediction: worker id -> experts. */
  byWorker({ layer, experts, workers }: Prediction): Map<string, number[]> {
    const told = new Map<string, number[]>();
    const grouped = workers.length === 0 ? assignPredictedExperts(this.placement, layer, experts) : null;
    experts.forEach((expert, index) => {
      const id = grouped?.get(expert) ?? this.placement.workers[workers[index] ?? 0]?.id ?? '';
      told.set(id, [...(told.get(id) ?? []), expert]);
    });
    return told;
  }

  #layersOf(pass: number): number[][] {
    let layers = this.#sets.get(pass);
    if (layers === undefined) {
      this.#sets.set(pass, (layers = []));
      this.#passIndex.set(pass, this.#nextIndex++);
    }
    return layers;
  }

  #forgetPass(pass: number): void {
    const index = this.#passIndex.get(pass);
    this.#sets.delete(pass);
    this.#passIndex.delete(pass);
    if (index === undefined) return;
    this.#dealer.forget(index * this.placement.layers, (index + 1) * this.placement.layers);
    this.#nextIndex = Math.min(this.#nextIndex, index);
  }

  #prediction(pass: number, layer: number, experts: readonly number[]): Prediction {
    const { epoch } = this.placement;
    const workers = this.spread === 'all' ? this.#deal(pass, layer, experts) : [];
    return { epoch, sequence: this.sequence, position: pass, layer, experts: [...experts], workers, restart: false };
  }

  #deal(pass: number, layer: number, experts: readonly number[]): number[] {
    const ordinal = (this.#passIndex.get(pass) ?? 0) * this.placement.layers + layer;
    if (this.firstLayerAhead && layer === 0) {
      const ahead = firstLayerWorkers(this.placement);
      for (const expert of experts) {
        const id = ahead.get(expert);
        const place = this.placement.workers.findIndex((worker) => worker.id === id);
        if (place >= 0) this.#dealer.give(ordinal, expert, place);
      }
    }
    return this.#dealer.deal(ordinal, experts);
  }
}
