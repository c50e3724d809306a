import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { CompressionState, LoadTimes } from '../../shared/decisions/caching/load-times.js';
import { perPool } from '../../shared/decisions/caching/pool-capacities.js';
import type { CacheStatus, PoolCounts } from '../../shared/wire/messages.js';
import type { PlacedExpert } from '../loader/cache-decisions.js';
import type { SlotCache } from '../loader/slot-table.js';
import type { SeenPasses } from './cache-residency.js';

/** The cache of a worker, of experts or of their slices. */
export interface WorkerCache extends SlotCache {
  /** The pools of each of these layers, which the worker serves from now on. */
  capacitiesFor(layers: readonly number[]): Map<number, PoolCapacities>;
  /** The capacities of all layers together now. */
  readonly capacities: PoolCapacities;
  /** Plans the pools of each layer again while answers run; null: they do not change. */
  readonly replanning: Replanning | null;
  /** The cached experts of the layer; null: the last report to main still holds. The returned list counts as reported. */
  takeChanged(layer: number): number[] | null;
  /** Forgets all reports, because main does not know what is cached. */
  forgetReported(): void;
  /** `uses`: uses of experts so far, by the state in memory when the use began. `recoded`: full experts that are stored as fixed4. */
  status(uses: Readonly<Record<CompressionState, number>>, recoded: number): CacheStatus;
}

export interface Replanning {
  /** Passes after which the caller should call `replan`. */
  readonly passes: number;
  /** The new pools of each layer; null: no change. `lentBytes`: cache memory that others have. */
  replan(seen: SeenPasses, load: LoadTimes, lentBytes: number): ReadonlyMap<number, PoolCapacities> | null;
  /** The same, at any time, when others have taken more memory than the pools leave. */
  fit(load: LoadTimes, lentBytes: number): ReadonlyMap<number, PoolCapacities> | null;
}

/** The cached experts that were last reported to main, by layer. */
export class ReportedExperts {
  private readonly reported = new Map<number, string>();

  /** Null: the last report still holds. The returned list counts as reported. */
  takeChanged(layer: number, cached: number[]): number[] | null {
    const text = cached.join(' ');
    if (text === (this.reported.get(layer) ?? '')) return null;
    this.reported.set(layer, text);
    return cached;
  }

  forget(): void {
    this.reported.clear();
  }
}

/** Number of cached experts by what is in memory of them. */
export function countCached(cached: readonly PlacedExpert[]): PoolCounts {
  const counts: PoolCounts = perPool(() => 0);
  for (const { state } of cached) if (state !== 'missing') counts[state] += 1;
  return counts;
}
