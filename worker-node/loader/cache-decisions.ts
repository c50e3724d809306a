/**
 * Decides which experts and parts a worker caches. The pools are F, C, S and E of ZipMoE (section 3.4, "Pool Dispatching"), or only F and C
 * when FluxMoE's planner sets their sizes (residency). LRU, FIFO, Marking and fixed popularity over full experts serve for comparison. Pure: it
 * decides; its caller loads, executes and reports.
 *
 * An expert's use begins with `acquire`, which tells what is in memory, where to load the expert and which parts to cache. `loaded` reports the
 * end of its load; `release` ends the use. From acquire to release the expert is pinned: nothing of it is evicted, and no entry that the use
 * reads or writes is given to another expert.
 */
import type { PerPart } from '../../shared/model/expert-parts.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { CachePolicy, Pool, PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { PerEntryKind } from '../../shared/decisions/caching/pool-capacities.js';

export interface CachePoolsOptions {
  policy: CachePolicy;
  /** Experts of one layer. */
  experts: number;
  /** Number of entries of each kind; they are numbered from 0. */
  entries: PerEntryKind<number>;
  /** delta: an expert ranked up to this many places behind a pool's last place may still be dispatched to it. */
  toleranceMargin: number;
  /** A number in [0, 1), for the random choice of Marking. */
  random: () => number;
}

/**
 * The source of one part, and the entry that caches it; -1: the part is not cached. If the source is 'entry', `entry` holds the part. Slices of an
 * expert may be 'notWanted'.
 */
export interface CachedPart {
  from: 'storage' | 'entry' | 'notWanted';
  entry: number;
}

/** One use of an expert. */
export interface CacheUse {
  readonly layer: number;
  readonly expert: number;
  /**
   * The state in memory when the use began. 'full': the expert is in `fullEntry`, or the load of another use brings it there (see
   * `readiness`); load nothing.
   */
  readonly state: CompressionState;
  /** The cache's expert slot that holds the expert or into which to load it; null: load into a working slot. */
  readonly fullEntry: number | null;
  readonly parts: PerPart<CachedPart>;
}

/** The end of a use's load, as the loader reports it. */
export interface UseLoaded {
  loaded: boolean;
  cached: PerPart<boolean>;
}

export interface CacheCounters {
  /** Uses by the state in memory when they began. */
  uses: Record<CompressionState, number>;
  evictions: number;
}

/** Readiness of a use that loads nothing itself. 'lost': the load on which it relied failed; release it and acquire again. */
export type Readiness = 'ready' | 'loading' | 'lost';

/** An expert that is cached now, for the status and for choosing workers. */
export interface PlacedExpert {
  layer: number;
  expert: number;
  pool: Pool;
  state: CompressionState;
}

export interface CacheDecisions {
  /**
   * Sets the capacities of the layers; together they must fit the entries. Experts without a place are dropped; those in use are dropped when
   * released.
   */
  setCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void;
  /** Adds recorded counts of a layer's experts to the runtime frequency list. */
  seedCounts(layer: number, counts: ArrayLike<number>): void;
  /** Main's router has chosen the expert for this many tokens. */
  activated(layer: number, expert: number, tokens: number): void;
  /** Begins a use of each expert. Ask for experts that are needed together in one call, so that none of them is evicted for another. */
  acquire(layer: number, experts: readonly number[]): CacheUse[];
  /** Call once, before release: the load of a use whose state was not 'full' has ended, or will not begin. */
  loaded(use: CacheUse, outcome: UseLoaded): void;
  readiness(use: CacheUse): Readiness;
  /** Ends the use. */
  endUse(use: CacheUse): void;
  /**
   * Takes a full entry out of use because its memory is wanted for something else: a free entry, or the entry of the least used expert. Returns
   * its number; null: all remaining entries are in use.
   */
  retireFull(): number | null;
  /** The same for free entries only; null: no entry is free. */
  retireFree(): number | null;
  /** The entry may be used again. */
  restoreFull(entry: number): void;
  stateOf(layer: number, expert: number): CompressionState;
  cached(): PlacedExpert[];
  readonly counters: CacheCounters;
}
