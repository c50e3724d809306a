import { assignCached, type CachingWorkers } from './cached-assignment.js';

/** Number of passes before the latest ordinal whose layers a dealer remembers. Older ones are loaded and run already. */
export const REMEMBERED_PASSES = 4;

/**
 * Deals a pass's experts to all workers instead of to the group of a layer, so that a larger set (a verified draft's) is spread over every
 * worker with time to load. Layers are counted through all passes by an ordinal, pass index x layers + layer. An expert goes to the worker whose
 * nearest load, before or after, is the most ordinals away, since that one has the longest time to load it. With one position a pass and as many
 * workers as `groups` groups of top-k this deals OD-MoE's round robin (section 3.1).
 * A cached expert goes to a worker that caches it, within bounds (assignCached), and does not count as a load.
 * The dealer knows loads only from its calls. A second call under one ordinal with a larger set gives the same workers to the experts of the
 * first.
 */
export class ExpertDealer {
  private readonly loads: WorkerLoads[];
  /** ordinal -> expert -> place. */
  private readonly dealt = new Map<number, Map<number, number>>();
  private readonly remembered: number;
  private latest = -1;

  /** Workers are named by their place, from 0. */
  constructor(workers: number, layers: number) {
    this.loads = Array.from({ length: workers }, () => new WorkerLoads());
    this.remembered = REMEMBERED_PASSES * layers + workers;
  }

  /** Number of remembered ordinals, and of loads under them. */
  get openCount(): number {
    return this.loads.reduce((sum, { all }) => sum + all, this.dealt.size);
  }

  /** The workers' places, one for each expert in the given order; empty if there are no workers. */
  deal(ordinal: number, experts: readonly number[], cachingWorkers: CachingWorkers<number> = () => []): number[] {
    if (this.loads.length === 0) return [];
    const fresh = experts.filter((expert) => this.dealt.get(ordinal)?.has(expert) !== true);
    const cached = assignCached(fresh, cachingWorkers, this.dealtUnder(ordinal), this.loads.length);
    for (const [expert, place] of cached) this.remember(ordinal, expert, place);
    return experts.map((expert) => {
      const held = this.dealt.get(ordinal)?.get(expert);
      return held ?? this.give(ordinal, expert, this.mostTime(ordinal));
    });
  }

  /** Records that other code chose the worker of an expert. Returns the place that the expert has: an earlier one stays. */
  give(ordinal: number, expert: number, place: number): number {
    const held = this.dealt.get(ordinal)?.get(expert);
    if (held !== undefined) return held;
    this.remember(ordinal, expert, place);
    this.loads[place]?.add(ordinal);
    return place;
  }

  /** Forgets the experts dealt under ordinals in [from, end), because they are not loaded after all. */
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

  /** place -> number of experts that it has under the ordinal, loads or not. */
  private dealtUnder(ordinal: number): Map<number, number> {
    const counts = new Map<number, number>();
    for (const place of this.dealt.get(ordinal)?.values() ?? []) counts.set(place, (counts.get(place) ?? 0) + 1);
    return counts;
  }

  /**
   * The best place for one more load: the one whose nearest load is farthest away; among equals, fewest experts under the ordinal itself, then
   * fewest loads at that distance, then fewest at all, then the first in the list.
   */
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

  /** Forgets ordinals in the order in which they were dealt first. An ordinal that was dealt late waits for those before it. */
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
  /** Rising; one entry for each load. */
  private readonly ordinals: number[] = [];

  get all(): number {
    return this.ordinals.length;
  }

  add(ordinal: number): void {
    this.ordinals.splice(this.firstFrom(ordinal), 0, ordinal);
  }

  /** Removes all loads under the ordinal. */
  remove(ordinal: number): void {
    this.ordinals.splice(this.firstFrom(ordinal), this.count(ordinal));
  }

  /** Distance to the nearest load; Infinity: there is none. */
  distance(ordinal: number): number {
    const after = this.firstFrom(ordinal);
    const next = this.ordinals[after] ?? Infinity;
    const before = this.ordinals[after - 1] ?? -Infinity;
    return Math.min(next - ordinal, ordinal - before);
  }

  /** Number of loads at exactly this distance before and after. */
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

  /** Index of the first ordinal that is not smaller. */
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
