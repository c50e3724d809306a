import type { Pool } from '../../shared/settings/cache-policies.js';
import {
  assumedInclusionProbabilities,
  inclusionProbabilities,
} from '../../shared/decisions/caching/selection-model.js';
import { NO_CAPACITIES, type PerEntryKind } from '../../shared/decisions/caching/pool-capacities.js';
import type { SliceSizes } from '../../shared/decisions/slices/displace-slices.js';
import { perPart, UPPER_PART } from '../../shared/model/expert-parts.js';
import {
  planOfTotals,
  planPools,
  type PlanRequest,
  type PoolPlan,
  type PoolPlans,
} from '../../shared/decisions/caching/plan-pools.js';
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
  const recorded = recordedInclusion(request);
  return { ...planPools(poolRequest(request, recorded, times)), isAssumed: recorded === null };
}

/**
 * The slices that the policy `sliced` holds in a budget, with the most used experts in the cache: upper slices, and lower ones when there is room for all upper
 * ones. Its plan has an expert with both slices as a full one, and one with its upper slices as their part. `times`: reading upper slices in the place
 * of exponents, and lower ones in that of signs and mantissas.
 */
export function planSlices(
  request: Omit<CacheRequest, 'entryBytes' | 'pools'>,
  { upperBytes, lowerBytes }: SliceSizes,
  times: MachineTimes,
): PoolPlan {
  const all = request.layers * request.experts;
  const uppers = Math.min(all, Math.floor(request.budgetBytes / upperBytes));
  const restBytes = request.budgetBytes - uppers * upperBytes;
  const lowersFit = lowerBytes === 0 ? uppers : uppers < all ? 0 : Math.floor(restBytes / lowerBytes);
  const full = Math.min(uppers, lowersFit);
  const entryBytes = {
    full: upperBytes + lowerBytes,
    ...perPart((part) => (part === UPPER_PART ? upperBytes : Math.max(1, lowerBytes))),
  };
  const pools = ['full', UPPER_PART] as const;
  const asked = poolRequest({ ...request, entryBytes, pools }, recordedInclusion(request), times);
  return planOfTotals(asked, { ...NO_CAPACITIES, full, [UPPER_PART]: uppers - full });
}

/** Null: no counts were recorded. */
function recordedInclusion({
  counts,
  activated,
}: Pick<CacheRequest, 'counts' | 'activated'>): ArrayLike<number> | null {
  const recorded = counts === null ? [] : counts.layers.map((layer) => counts.of(layer));
  return inclusionProbabilities(recorded, activated);
}

function poolRequest(request: CacheRequest, recorded: ArrayLike<number> | null, times: MachineTimes): PlanRequest {
  const { experts, activated, layers, budgetBytes, entryBytes, pools } = request;
  return {
    inclusion: recorded ?? assumedInclusionProbabilities(experts, activated, ASSUMED_SKEW),
    activated,
    layers,
    budgetBytes,
    entryBytes,
    pools,
    loadTimes: times.load,
    costs: times.costs,
  };
}
