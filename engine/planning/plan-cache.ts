import type { Pool } from '../../shared/settings/cache-policies.js';
import {
  assumedInclusionProbabilities,
  inclusionProbabilities,
} from '../../shared/decisions/caching/selection-model.js';
import { type EntryBytes, planPools, type PoolPlans } from '../../shared/decisions/caching/plan-pools.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { MachineProfile } from './fit-profile.js';

/** Popularity of a layer's experts before anything was counted: as rank to the power of minus this. A mild skew. */
export const ASSUMED_SKEW = 0.5;

/** What a cache is to be planned for. */
export interface CacheRequest {
  budgetBytes: number;
  entryBytes: EntryBytes;
  /** Layers that share the budget. */
  layers: number;
  /** Experts of a layer, and how many of them one token asks this worker for. */
  experts: number;
  activated: number;
  /** Null: nothing was recorded. */
  counts: ActivationCounts | null;
  pools: readonly Pool[];
}

export interface CachePlans extends PoolPlans {
  /** Popularity was assumed, because nothing was counted. */
  isAssumed: boolean;
}

/** The best division of a budget for this machine and for what was recorded (ZipMoE Algorithm 4), beside whole experts alone and no cache. */
export function planCache(request: CacheRequest, profile: MachineProfile): CachePlans {
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
    profile: profile.load,
    costs: profile.costs,
  });
  return { ...plans, isAssumed: inclusion === null };
}
