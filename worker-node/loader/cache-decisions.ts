/**
 * Decides which experts and parts a worker caches. The pools are F, C, S and E of ZipMoE (section 3.4, "Pool Dispatching"), or only F and C
 * when FluxMoE's planner sets their sizes (residency). LRU, FIFO, Marking and fixed popularity over full experts serve for comparison. Sliced
 * experts have a cache of their own kind (SliceDecisions). Pure: it decides; its caller loads, executes and reports.
 *
 * An expert's use begins with `acquire`, which tells what is in memory, where to load the expert and which parts to cache. `loaded` reports the
 * end of its load; `release` ends the use. From acquire to release the expert is pinned: nothing of it is evicted, and no entry that the use
 * reads or writes is given to another expert.
 */
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PerPart } from '../../shared/model/expert-parts.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import type { ExpertPolicy, Pool, PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { PerEntryKind } from '../../shared/decisions/caching/pool-capacities.js';

export interface CachePoolsOptions {
  policy: ExpertPolicy;
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

/** The questions that the slot schedule asks any cache. */
interface CachedUses {
  /**
   * Sets the capacities of the layers; together they must fit the entries. Experts without a place are dropped; those in use are dropped when
   * released. A cache of slices takes only the layers from it.
   */
  setCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void;
  /** Main's router has chosen the expert for this many tokens. */
  activated(layer: number, expert: number, tokens: number): void;
  /** Begins a use of each expert. Ask for experts that are needed together in one call, so that none of them is evicted for another. */
  acquire(layer: number, experts: readonly number[]): CacheUse[];
  /** Call once, before release: the load of a use whose expert was not in a slot of the cache has ended, or will not begin. */
  loaded(use: CacheUse, outcome: UseLoaded): void;
  /** Ends the use. */
  endUse(use: CacheUse): void;
  /** A slot of the cache has the expert: whole, or at least its upper slices. */
  isInSlot(layer: number, expert: number): boolean;
  cached(): PlacedExpert[];
}

/** A cache of experts as they are shipped. */
export interface ExpertDecisions extends CachedUses {
  readonly keeps: 'experts';
  /** Adds recorded counts of a layer's experts to the runtime frequency list. */
  seedCounts(layer: number, counts: ArrayLike<number>): void;
  readiness(use: CacheUse): Readiness;
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
  readonly counters: CacheCounters;
}

/** Whether the slot of a use has memory for the lower slices now; an error: the device refused the memory. */
export type LowerMemory = 'taken' | 'noRoom' | OdmoeError;

/**
 * A cache of slices. The memory of its slots changes hands between upper and lower slices at once, when the cache decides. Every slot in use has its
 * upper slices, or a load that brings them.
 */
export interface SliceDecisions extends CachedUses {
  readonly keeps: 'slices';
  /** The lower slices are in the slot of the use. */
  hasLower(use: CacheUse): boolean;
  /** The lower slices of the use are about to be loaded or read. With 'noRoom', ask again when another use has ended. */
  takeLower(use: CacheUse): LowerMemory;
  /** The load for which `takeLower` took memory has ended. */
  lowerLoaded(use: CacheUse, loaded: boolean): void;
  /** The use loses its lower slices, which nothing reads or loads now. */
  giveUpLower(use: CacheUse): void;
  /** The entries whose experts have left since the last call. */
  takeLeft(): number[];
  /** Gives so much memory back to the device as a working slot has. False: nothing more may leave. */
  lend(): boolean;
  /** How many times `lend` could succeed if nothing were in use. */
  readonly lendable: number;
  /** Takes the memory of so many lends again. */
  takeBack(lends: number): void;
}

export type CacheDecisions = ExpertDecisions | SliceDecisions;
