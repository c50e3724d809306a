/** Passes' worth of layers before the latest ordinal that a dealer remembers: what is older is loaded and run. */
export const REMEMBERED_PASSES = 4;

/**
 * Deals a pass's experts to all workers instead of to the group of a layer, so that a larger set (a verified draft's) is spread
 * over everybody who has time to load. Layers are counted through all passes by an ordinal, pass index x layers + layer: an expert
 * goes to the worker whose nearest load, before or after, is the most ordinals away, since that one has the longest to load it. With
 * one position a pass and as many workers as `groups` groups of top-k this deals OD-MoE's round robin (section 3.1).
 *
 * Knows loads only by what it was asked; who asks twice under one ordinal with a larger set gets the same worker for what was
 * there before.
 */
export class ExpertDealer {
  /** For each worker: ordinal -> experts dealt to it under that ordinal. */
  private readonly loads: Map<number, number>[];
  /** ordinal -> expert -> place. */
  private readonly dealt = new Map<number, Map<number, number>>();
  private readonly remembered: number;
  private latest = -1;

  /** Workers are dealt to by their place, from 0. */
  constructor(workers: number, layers: number) {
    this.loads = Array.from({ length: workers }, () => new Map<number, number>());
    this.remembered = REMEMBERED_PASSES * layers + workers;
  }

  /** The workers' places, one for each expert in the order given; empty where there is no worker. */
  deal(ordinal: number, experts: readonly number[]): number[] {
    if (this.loads.length === 0) return [];
    return experts.map((expert) => {
      const held = this.dealt.get(ordinal)?.get(expert);
      return held ?? this.give(ordinal, expert, this.mostTime(ordinal));
    });
  }

  /** The expert goes to a worker that others have chosen. Returns the place that it has: one that it had before stays. */
  give(ordinal: number, expert: number, place: number): number {
    let under = this.dealt.get(ordinal);
    if (under === undefined) {
      under = new Map();
      this.dealt.set(ordinal, under);
      this.latest = Math.max(this.latest, ordinal);
      this.forgetOld();
    }
    const held = under.get(expert);
    if (held !== undefined) return held;
    under.set(expert, place);
    const loads = this.loads[place];
    loads?.set(ordinal, (loads.get(ordinal) ?? 0) + 1);
    return place;
  }

  /** What was dealt under ordinals in [from, end) is not loaded after all. */
  forget(from: number, end: number): void {
    for (const ordinal of [...this.dealt.keys()]) {
      if (ordinal >= from && ordinal < end) this.forgetOrdinal(ordinal);
    }
  }

  private mostTime(ordinal: number): number {
    let best = { place: 0, distance: -1, near: 0, all: 0 };
    this.loads.forEach((loads, place) => {
      const found = { place, ...nearestLoad(loads, ordinal) };
      if (isFreer(found, best)) best = found;
    });
    return best.place;
  }

  private forgetOld(): void {
    const oldest = this.latest - this.remembered;
    for (const ordinal of [...this.dealt.keys()]) {
      if (ordinal < oldest) this.forgetOrdinal(ordinal);
    }
  }

  private forgetOrdinal(ordinal: number): void {
    for (const place of this.dealt.get(ordinal)?.values() ?? []) this.loads[place]?.delete(ordinal);
    this.dealt.delete(ordinal);
  }
}

interface NearestLoad {
  /** In ordinals; Infinity: the worker has no load. */
  distance: number;
  /** Loads at that distance. */
  near: number;
  all: number;
}

function nearestLoad(loads: ReadonlyMap<number, number>, ordinal: number): NearestLoad {
  const nearest: NearestLoad = { distance: Infinity, near: 0, all: 0 };
  for (const [other, count] of loads) {
    const distance = Math.abs(other - ordinal);
    if (distance < nearest.distance) Object.assign(nearest, { distance, near: 0 });
    if (distance === nearest.distance) nearest.near += count;
    nearest.all += count;
  }
  return nearest;
}

/** The nearest load farther away, then fewer of them that near, then fewer loads at all. */
function isFreer(left: NearestLoad, right: NearestLoad): boolean {
  if (left.distance !== right.distance) return left.distance > right.distance;
  if (left.near !== right.near) return left.near < right.near;
  return left.all < right.all;
}
