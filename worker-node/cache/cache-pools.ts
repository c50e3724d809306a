import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type {
  CacheCounters,
  CachePoolsOptions,
  CacheUse,
  CachedPart,
  ExpertDecisions,
  PlacedExpert,
  Readiness,
  UseLoaded,
} from '../loader/cache-decisions.js';
import { EntryNumbers, NO_ENTRY } from './entry-numbers.js';
import type { CachedExpert } from './cached-expert.js';
import { LayerPools } from './layer-pools.js';
import { perState, type CompressionState } from '../../shared/decisions/caching/load-times.js';
import { type Part, perPart, type PerPart } from '../../shared/model/expert-parts.js';
import {
  addCapacities,
  checkCapacities,
  ENTRY_KINDS,
  entriesOf,
  NO_CAPACITIES,
  type EntryKind,
} from '../../shared/decisions/caching/pool-capacities.js';

const FROM_STORAGE: CachedPart = { from: 'storage', entry: NO_ENTRY };
const ALL_FROM_STORAGE = perPart(() => FROM_STORAGE);

/** The internal state of one use; callers see it as a CacheUse. */
class Use implements CacheUse {
  phase: 'loading' | 'loaded' | 'released' = 'loading';
  state: CompressionState = 'missing';
  fullEntry: number | null = null;
  parts: PerPart<CachedPart> = ALL_FROM_STORAGE;
  /** Entries that its load fills. */
  readonly fills: EntryKind[] = [];
  readonly reads: EntryKind[] = [];

  constructor(
    readonly layer: number,
    readonly expert: number,
    /** Null: the cache holds nothing of the expert. */
    readonly cached: CachedExpert | null,
  ) {}
}

/** The pools of all layers that a worker serves. A layer without capacities caches nothing. */
export class CachePools implements ExpertDecisions {
  readonly keeps = 'experts';
  readonly counters: CacheCounters = {
    uses: perState(() => 0),
    evictions: 0,
  };
  private readonly options: CachePoolsOptions;
  private readonly entries: EntryNumbers;
  private readonly layers = new Map<number, LayerPools>();

  constructor(options: CachePoolsOptions) {
    this.options = options;
    this.entries = new EntryNumbers(options.entries);
  }

  setCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void {
    this.requireEntries([...capacities.values()]);
    for (const layer of capacities.keys()) this.poolsOfLayer(layer);
    for (const [layer, pools] of this.layers) pools.setCapacities(capacities.get(layer) ?? NO_CAPACITIES);
  }

  seedCounts(layer: number, counts: ArrayLike<number>): void {
    this.poolsOfLayer(layer).frequencies.seed(counts);
  }

  activated(layer: number, expert: number, tokens: number): void {
    this.poolsOfLayer(layer).frequencies.add(expert, tokens);
  }

  acquire(layer: number, experts: readonly number[]): CacheUse[] {
    const pools = this.poolsOfLayer(layer);
    // Pin the experts that are cached already, before a new use makes room.
    const present = experts.flatMap((expert) => pools.find(expert) ?? []);
    for (const cached of present) cached.pins += 1;
    const frequency = (index: number): number => pools.frequencies.of(experts[index] ?? 0);
    const mostFrequentFirst = [...experts.keys()].sort((left, right) => frequency(right) - frequency(left));
    const uses = new Map(mostFrequentFirst.map((index) => [index, this.begin(pools, layer, experts[index] ?? 0)]));
    for (const cached of present) cached.pins -= 1;
    return experts.flatMap((_, index) => uses.get(index) ?? []);
  }

  loaded(use: CacheUse, outcome: UseLoaded): void {
    const own = this.own(use, 'loading');
    own.phase = 'loaded';
    const { cached } = own;
    if (cached === null) return;
    for (const kind of own.reads) if (kind !== 'full') cached.holdings[kind].readers -= 1;
    const isFilled = { ...outcome.cached, full: outcome.loaded };
    for (const kind of own.fills) {
      if (isFilled[kind]) cached.holdings[kind].filled = true;
      else if (kind !== 'full') cached.drop(kind, this.entries);
    }
    const pools = this.poolsOfLayer(own.layer);
    if (own.fills.includes('full') && !outcome.loaded) {
      cached.holdings.full.readers -= 1;
      own.reads.splice(own.reads.indexOf('full'), 1);
      pools.fallBack(cached);
    }
    pools.tidy(cached);
  }

  readiness(use: CacheUse): Readiness {
    const { cached, fullEntry } = this.own(use, 'loaded');
    const full = cached?.holdings.full;
    if (full === undefined || full.entry !== fullEntry) return 'lost';
    return full.filled ? 'ready' : 'loading';
  }

  endUse(use: CacheUse): void {
    const own = this.own(use, 'loaded');
    own.phase = 'released';
    const { cached } = own;
    if (cached === null) return;
    if (own.reads.includes('full')) cached.holdings.full.readers -= 1;
    cached.pins -= 1;
    this.poolsOfLayer(own.layer).tidy(cached);
  }

  retireFull(): number | null {
    if (this.entries.available('full') === 0) {
      const idle = [...this.layers.values()].flatMap((pools) => pools.leastFrequentIdle() ?? []);
      const least = idle.reduce<(typeof idle)[number] | null>(
        (best, other) => (best === null || other.frequency < best.frequency ? other : best),
        null,
      );
      least?.evict();
    }
    return this.retireFree();
  }

  retireFree(): number | null {
    return this.entries.available('full') === 0 ? null : this.entries.take('full');
  }

  restoreFull(entry: number): void {
    this.entries.give('full', entry);
  }

  isInSlot(layer: number, expert: number): boolean {
    return this.stateOf(layer, expert) === 'full';
  }

  stateOf(layer: number, expert: number): CompressionState {
    return this.layers.get(layer)?.find(expert)?.state ?? 'missing';
  }

  cached(): PlacedExpert[] {
    return [...this.layers].flatMap(([layer, pools]) =>
      pools.cached.flatMap(({ expert, pool, state }) => (pool === null ? [] : [{ layer, expert, pool, state }])),
    );
  }

  /**
   * Experts of a layer that are cached with both parts, plain or compressed, or will be when their load has ended: storage is not read for
   * them. Rising.
   */
  cachedOf(layer: number): number[] {
    const cached = this.layers.get(layer)?.cached ?? [];
    return cached
      .filter(({ pool }) => pool === 'full' || pool === 'compressed')
      .map(({ expert }) => expert)
      .sort((left, right) => left - right);
  }

  private begin(pools: LayerPools, layer: number, expert: number): Use {
    const before = pools.find(expert);
    const isFull = before !== undefined && before.holdings.full.entry !== NO_ENTRY;
    const cached = isFull ? before : pools.place(expert);
    const use = new Use(layer, expert, cached ?? null);
    use.state = isFull ? 'full' : (cached?.state ?? 'missing');
    this.counters.uses[use.state] += 1;
    if (cached === undefined) return use;
    cached.pins += 1;
    pools.touch(cached);
    if (isFull) {
      use.phase = 'loaded';
      use.reads.push('full');
      cached.holdings.full.readers += 1;
      use.fullEntry = cached.holdings.full.entry;
      return use;
    }
    this.planLoad(use, cached);
    return use;
  }

  private planLoad(use: Use, cached: CachedExpert): void {
    for (const kind of cached.pool === null ? [] : cached.lacking(cached.pool)) {
      if (this.entries.available(kind) === 0) continue;
      cached.take(kind, this.entries);
      use.fills.push(kind);
    }
    if (use.fills.includes('full')) {
      use.reads.push('full');
      cached.holdings.full.readers += 1;
      use.fullEntry = cached.holdings.full.entry;
    }
    use.parts = perPart((part) => this.part(use, cached, part));
  }

  private part(use: Use, cached: CachedExpert, kind: Part): CachedPart {
    const holding = cached.holdings[kind];
    if (holding.filled) {
      holding.readers += 1;
      use.reads.push(kind);
      return { from: 'entry', entry: holding.entry };
    }
    return use.fills.includes(kind) ? { from: 'storage', entry: holding.entry } : FROM_STORAGE;
  }

  private poolsOfLayer(layer: number): LayerPools {
    let pools = this.layers.get(layer);
    if (pools === undefined) {
      const { policy, experts, toleranceMargin, random } = this.options;
      const onEvict = (): void => void (this.counters.evictions += 1);
      pools = new LayerPools({ policy, experts, toleranceMargin, random, entries: this.entries, onEvict });
      this.layers.set(layer, pools);
    }
    return pools;
  }

  private own(use: CacheUse, phase: Use['phase']): Use {
    if (use instanceof Use && use.phase === phase) return use;
    const found = use instanceof Use ? use.phase : 'not from these pools';
    throw new OdmoeError(
      'INTERNAL',
      `use of expert ${use.expert} of layer ${use.layer}: it is ${found}, expected ${phase}`,
    );
  }

  private requireEntries(capacities: readonly PoolCapacities[]): void {
    capacities.forEach(checkCapacities);
    const needed = entriesOf(capacities.reduce(addCapacities, NO_CAPACITIES));
    for (const kind of ENTRY_KINDS) {
      if (needed[kind] <= this.entries.counts[kind]) continue;
      throw new OdmoeError(
        'INTERNAL',
        `pools with ${needed[kind]} ${kind} entries, there are ${this.entries.counts[kind]}`,
      );
    }
  }
}
