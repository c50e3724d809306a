import { assignCached, type CachingWorkers } from './cached-assignment.js';

/** Passes' worth of layers before the latest ordinal that a dealer remembers: what is older is loaded and run. */
export const REMEMBERED_PASSES = 4;

/**
 * Deals a pass's experts to all workers instead of to the group of a layer, so that a larger set (a verified draft's) is spread
 * over everybody who has time to load. Layers are counted through all passes by an ordinal, pass index x layers + layer: an expert
 * goes to the worker whose nearest load, before or after, is the most ordinals away, since that one has the longest to load it. With
 * one position a pass and as many workers as `groups` groups of top-k this deals OD-MoE's round robin (section 3.1).
 *
 * An expert that a worker keeps goes there, within bounds (assignCached), and is no load.
 *
 * Knows loads only by what it was asked; who asks twice under one ordinal with a larger set gets the same worker for what was
 * there before.
 */
export class ExpertDealer {
  private readonly loads: WorkerLoads[];
  /** ordinal -> expert -> place. */
  private readonly dealt = new Map<number, Map<number, number>>();
  private readonly remembered: number;
  private latest = -1;

  /** Workers are dealt to by their place, from 0. */
  constructor(workers: number, layers: number) {
    this.loads = Array.from({ length: workers }, () => new WorkerLoads());
    this.remembered = REMEMBERED_PASSES * layers + workers;
  }

  /** Ordinals that are remembered, and loads under them. */
  get openCount(): number {
    return this.loads.reduce((sum, { all }) => sum + all, this.dealt.size);
  }

  /** The workers' places, one for each expert in the order given; empty where there is no worker. */
  deal(ordinal: number, experts: readonly number[], keepers: CachingWorkers<number> = () => []): number[] {
    if (this.loads.length === 0) return [];
    const fresh = experts.filter((expert) => this.dealt.get(ordinal)?.has(expert) !== true);
    const kept = assignCached(fresh, keepers, this.dealtUnder(ordinal), this.loads.length);
    for (const [expert, place] of kept) this.remember(ordinal, expert, place);
    return experts.map((expert) => {
      const held = this.dealt.get(ordinal)?.get(expert);
      return held ?? this.give(ordinal, expert, this.mostTime(ordinal));
    });
  }

  /** The expert goes to a worker that others have chosen. Returns the place that it has: one that it had before stays. */
  give(ordinal: number, expert: number, place: number): number {
    const held = this.dealt.get(ordinal)?.get(expert);
    if (held !== undefined) return held;
    this.remember(ordinal, expert, place);
    this.loads[place]?.add(ordinal);
    return place;
  }

  /** What was dealt under ordinals in [from, end) is not loaded after all. */
  forget(from: number, end: number): void {
    for (const ordinal of [...this.dealt.keys()]) {
      if (ordinal >= from && ordinal < end) this.forgetOrdinal(ordinal);
    }
  }

  private remember(ordinal: number, expert: number, place: number): void {
    let under = this.dealt.get(ordinal);
    if (under === undefined) {
      under = new Map();
      this.dealt.set(ordinal, under);
      this.latest = Math.max(this.latest, ordinal);
      this.forgetOld();
    }
    under.set(expert, place);
  }

  /** place -> experts that it has under the ordinal, loads or not. */
  private dealtUnder(ordinal: number): Map<number, number> {
    const counts = new Map<number, number>();
    for (const place of this.dealt.get(ordinal)?.values() ?? []) counts.set(place, (counts.get(place) ?? 0) + 1);
    return counts;
  }

  /** The nearest load farthest away, then fewer experts under the ordinal itself, then fewer loads that near, then fewer at all, then the first in the list. */
  private mostTime(ordinal: number): number {
    let best = 0;
    let farthest = -1;
    let fewestNear = 0;
    let fewest = 0;
    let fewestHere = 0;
    const dealtHere = this.dealtUnder(ordinal);
    for (const [place, loads] of this.loads.entries()) {
      const distance = loads.distance(ordinal);
      if (distance < farthest) continue;
      const near = loads.near(ordinal, distance);
      const here = dealtHere.get(place) ?? 0;
      const order = here - fewestHere || near - fewestNear || loads.all - fewest;
      if (distance === farthest && order >= 0) continue;
      [best, farthest, fewestHere, fewestNear, fewest] = [place, distance, here, near, loads.all];
    }
    return best;
  }

  /** In the order in which they were dealt first; one that was dealt late waits for those before it. */
  private forgetOld(): void {
    const oldest = this.latest - this.remembered;
    for (const ordinal of this.dealt.keys()) {
      if (ordinal >= oldest) return;
      this.forgetOrdinal(ordinal);
    }
  }

  private forgetOrdinal(ordinal: number): void {
    for (const place of this.dealt.get(ordinal)?.values() ?? []) this.loads[place]?.remove(ordinal);
    this.dealt.delete(ordinal);
  }
}

/** The ordinals under which a worker has loads. */
class WorkerLoads {
  /** Rising; one for each load. */
  private readonly ordinals: number[] = [];

  get all(): number {
    return this.ordinals.length;
  }

  add(ordinal: number): void {
    this.ordinals.splice(this.firstFrom(ordinal), 0, ordinal);
  }

  /** All under that ordinal. */
  remove(ordinal: number): void {
    this.ordinals.splice(this.firstFrom(ordinal), this.count(ordinal));
  }

  /** To the nearest; Infinity: there is none. */
  distance(ordinal: number): number {
    const after = this.firstFrom(ordinal);
    const next = this.ordinals[after] ?? Infinity;
    const before = this.ordinals[after - 1] ?? -Infinity;
    return Math.min(next - ordinal, ordinal - before);
  }

  /** Loads that far before and after. */
  near(ordinal: number, distance: number): number {
    if (distance === Infinity) return 0;
    return this.count(ordinal + distance) + (distance === 0 ? 0 : this.count(ordinal - distance));
  }

  private count(ordinal: number): number {
    const first = this.firstFrom(ordinal);
    let end = first;
    while (this.ordinals[end] === ordinal) end += 1;
    return end - first;
  }

  /** Index of the first that is not smaller. */
  private firstFrom(ordinal: number): number {
    let low = 0;
    let high = this.ordinals.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.ordinals[middle] as number) < ordinal) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
