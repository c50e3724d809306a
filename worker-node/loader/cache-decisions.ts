/**
 * What a worker keeps of the experts it loads: the pools F, C, S and E of ZipMoE (section 3.4, "Pool Dispatching"), F and C alone where
 * their sizes follow FluxMoE's planner (residency), and LRU, FIFO, Marking and fixed popularity over whole experts to compare with. Pure: it decides, its caller loads, executes and reports.
 *
 * An expert's use begins with `acquire`, which says what is in memory, where to load it and what of it to keep; what it must load is
 * reported by `loaded`; `release` ends it. From acquire to release it is pinned: nothing of it is evicted, and no entry that it
 * reads or writes is given to another.
 */
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { CachePolicy, Pool, PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { CacheEntries } from '../../shared/decisions/caching/pool-capacities.js';

export interface CachePoolsOptions {
  policy: CachePolicy;
  /** Experts of a layer. */
  experts: number;
  /** Entries that exist. Numbers from 0 for each kind. */
  entries: CacheEntries;
  /** delta: an expert may rank this much behind a pool's last place and still be dispatched to it. */
  toleranceMargin: number;
  /** A number in [0, 1), for Marking's choice. */
  random: () => number;
}

/** Where one part comes from and which entry keeps it; -1: it is not kept. Of 'entry', `entry` is where it lies. */
export interface CachedPart {
  from: 'storage' | 'entry';
  entry: number;
}

/** One use of an expert. */
export interface CacheUse {
  readonly layer: number;
  readonly expert: number;
  /** What was in memory. 'full': it is, or another use's load is bringing it, in `fullEntry` (`readiness` tells); load nothing. */
  readonly state: CompressionState;
  /** Expert slot of the cache that holds it or is to be loaded; null: load into a slot of the caller's own. */
  readonly fullEntry: number | null;
  readonly exponents: CachedPart;
  readonly signMantissa: CachedPart;
}

/** How a use's load ended, as the loader reports it. */
export interface UseLoaded {
  loaded: boolean;
  exponentsKept: boolean;
  signMantissaKept: boolean;
}

export interface CacheCounters {
  /** Uses by what was in memory. */
  uses: Record<CompressionState, number>;
  evictions: number;
}

/** Of a use that loads nothing itself. 'lost': the load it relied on did not succeed; release it and acquire anew. */
export type Readiness = 'ready' | 'loading' | 'lost';

/** Experts that a layer keeps at this moment, for status and affinity. */
export interface PlacedExpert {
  layer: number;
  expert: number;
  pool: Pool;
  state: CompressionState;
}

export interface CacheDecisions {
  /** Which layers keep what from now on; together they fit the entries. What no longer has a place is dropped, in use: when released. */
  setCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void;
  /** Adds to the runtime frequency list what was recorded earlier: counts of a layer's experts. */
  seedCounts(layer: number, counts: ArrayLike<number>): void;
  /** Main's router has chosen the expert for so many tokens. */
  activated(layer: number, expert: number, tokens: number): void;
  /** Begins a use of each; experts that are needed together are to be asked for together, so that none makes room for another. */
  acquire(layer: number, experts: readonly number[]): CacheUse[];
  /** The load of a use whose state was not 'full' has ended (or will not be begun); before release, once. */
  loaded(use: CacheUse, outcome: UseLoaded): void;
  readiness(use: CacheUse): Readiness;
  /** Ends the use. */
  release(use: CacheUse): void;
  /**
   * Takes a full entry out of use, whose memory is wanted for something else: a free one, or that of the expert used least. Returns its
   * number; null: all that are left are in use.
   */
  retireFull(): number | null;
  /** The same of a free entry; null: none is. */
  retireFree(): number | null;
  /** The entry may be used again. */
  restoreFull(entry: number): void;
  stateOf(layer: number, expert: number): CompressionState;
  kept(): PlacedExpert[];
  readonly counters: CacheCounters;
}
