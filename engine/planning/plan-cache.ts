import type { Pool } from '../../shared/settings/cache-policies.js';
import {
  assumedInclusionProbabilities,
  inclusionProbabilities,
} from '../../shared/decisions/caching/selection-model.js';
import type { PerEntryKind } from '../../shared/decisions/caching/pool-capacities.js';
import { planPools, type PoolPlans } from '../../shared/decisions/caching/plan-pools.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { MachineTimes } from './fit-machine-times.js';

/** The assumed popularity of a layer's experts without counts: rank to the power of minus this. A mild skew. */
export const ASSUMED_SKEW = 0.5;

/** Inputs for planning a cache. */
export interface CacheRequest {
  budgetBytes: number;
  entryBytes: PerEntryKind<number>;
  /** Layers that share the budget. */
  layers: number;
  /** Experts of one layer, and the number of them that one token asks this worker for. */
  experts: number;
  activated: number;
  /** Null: no counts were recorded. */
  counts: ActivationCounts | null;
  pools: readonly Pool[];
}

export interface CachePlans extends PoolPlans {
  /** The popularity was assumed, because there were no counts. */
  isAssumed: boolean;
}

/** The best division of a budget for this machine and the recorded counts (ZipMoE Algorithm 4), with full experts only and no cache for comparison. */
export function planCache(request: CacheRequest, times: MachineTimes): CachePlans {
  const { experts, activated, counts, layers, budgetBytes, entryBytes, pools } = request;
  const recorded = counts === null ? [] : counts.layers.map((layer) => counts.of(layer));
  const inclusion = inclusionProbabilities(recorded, activated);
  const plans = planPools({
    inclusion: inclusion ?? assumedInclusionProbabilities(experts, activated, ASSUMED_SKEW),
    activated,
    layers,
    budgetBytes,
    entryBytes,
    pools,
    loadTimes: times.load,
    costs: times.costs,
  });
  return { ...plans, isAssumed: inclusion === null };
}
