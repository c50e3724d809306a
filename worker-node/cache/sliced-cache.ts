import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { UPPER_PART } from '../../shared/model/expert-parts.js';
import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { CacheStatus } from '../../shared/wire/messages.js';
import { SlicesInSlots, type SlicedCacheShape } from './slice-decisions.js';
import { SliceMemory, type SliceMemoryOptions } from './slice-memory.js';
import { countCached, ReportedExperts, type WorkerCache } from './worker-cache.js';

export interface SlicedCacheOptions {
  shape: SlicedCacheShape;
  memory: Omit<SliceMemoryOptions, keyof SlicedCacheShape>;
  /** Counts recorded in earlier runs; uses in this run are added to them. */
  counts: ActivationCounts;
}

/** The policy `sliced`: one cache of slices over all layers that a worker serves. */
export class SlicedCache implements WorkerCache {
  readonly decisions: SlicesInSlots;
  readonly replanning = null;
  private readonly reported = new ReportedExperts();

  constructor(private readonly options: SlicedCacheOptions) {
    const { shape, memory, counts } = options;
    this.decisions = new SlicesInSlots(shape, new SliceMemory({ ...shape, ...memory }), (layer, expert, tokens) =>
      counts.add(layer, expert, tokens),
    );
  }

  get slots(): number {
    return this.options.memory.slots;
  }

  /** Layers have no part of their own. */
  capacitiesFor(layers: readonly number[]): Map<number, PoolCapacities> {
    return new Map(layers.map((layer) => [layer, NO_CAPACITIES]));
  }

  /**
   * Two upper bounds over the same bytes, which are not to be added: `full` is most experts with all slices that are loaded, if nothing else is
   * cached, and UPPER_PART most experts with their upper slices alone.
   */
  get capacities(): PoolCapacities {
    const { upperBytes, lowerBytes, hasLower } = this.options.shape;
    const { capacityBytes } = this.decisions;
    const countOf = (bytes: number): number => Math.min(this.slots, Math.floor(capacityBytes / bytes));
    const full = countOf(upperBytes + lowerBytes);
    return { ...NO_CAPACITIES, full, ...(hasLower ? { [UPPER_PART]: countOf(upperBytes) } : {}) };
  }

  takeChanged(layer: number): number[] | null {
    return this.reported.takeChanged(layer, this.decisions.cachedOf(layer));
  }

  forgetReported(): void {
    this.reported.forget();
  }

  status({ missing: misses, ...hits }: Readonly<Record<CompressionState, number>>, recoded: number): CacheStatus {
    const { capacities, decisions } = this;
    const kept = countCached(decisions.cached());
    return { policy: 'sliced', bytes: decisions.capacityBytes, capacities, kept, packed: recoded, hits, misses };
  }
}
