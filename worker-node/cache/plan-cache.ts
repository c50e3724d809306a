import type { MachineProfile } from '../../engine/planning/profile-loading.js';
import { OdmoeError } from '../../shared/errors/index.js';
import {
  assumedInclusionProbabilities,
  inclusionProbabilities,
  NO_CAPACITIES,
  planPools,
  POOLS,
  type EntryBytes,
  type PoolCapacities,
} from '../../shared/planner/index.js';
import type { ActivationCounts } from '../../shared/planner/activation-counts.js';

/** Popularity of a layer's experts before anything was counted: as rank to the power of minus this. */
const ASSUMED_SKEW = 0.5;

export interface CacheRequest {
  budgetBytes: number;
  entryBytes: EntryBytes;
  layers: number;
  /** Experts of a layer, and how many of them one token asks this worker for. */
  experts: number;
  activated: number;
  counts: ActivationCounts;
}

export interface CachePlan {
  /** Of all layers together. */
  capacities: PoolCapacities;
  usedBytes: number;
  /** Expected time of a layer's loads with this plan and without a cache; null where nothing was expected. */
  expected: { plannedMs: number; cachelessMs: number } | null;
}

/** Whole experts only: as many as the budget holds. */
export function planFullExperts({ budgetBytes, entryBytes, layers, experts }: CacheRequest): CachePlan {
  const full = Math.min(layers * experts, Math.floor(budgetBytes / entryBytes.full));
  return { capacities: { ...NO_CAPACITIES, full }, usedBytes: full * entryBytes.full, expected: null };
}

/** The best division of the budget for this machine (ZipMoE Algorithm 4) and what is known of the layers that it served. */
export function planForMachine(request: CacheRequest, { load, executeMs }: MachineProfile): CachePlan {
  const { experts, activated, counts, budgetBytes, entryBytes } = request;
  const served = counts.layers;
  const inclusion =
    inclusionProbabilities(
      served.map((layer) => counts.of(layer)),
      activated,
    ) ?? assumedInclusionProbabilities(experts, activated, ASSUMED_SKEW);
  const layers = served.length === 0 ? request.layers : served.length;
  const { planned, none } = planPools({
    ...{ inclusion, activated, layers, budgetBytes, entryBytes, pools: POOLS, profile: load, executeMs },
  });
  return {
    capacities: planned.totals,
    usedBytes: planned.usedBytes,
    expected: { plannedMs: planned.makespanMs, cachelessMs: none.makespanMs },
  };
}

/** Bytes of pools that somebody has written down. */
export function poolBytes(capacities: PoolCapacities, { full, exponent, signMantissa }: EntryBytes): number {
  return (
    capacities.full * full +
    (capacities.compressed + capacities.exponent) * exponent +
    (capacities.compressed + capacities.signMantissa) * signMantissa
  );
}

/** Throws DEVICE_OUT_OF_MEMORY when there is not room for pools that were asked for one by one. */
export function requirePools(wantedBytes: number, freeBytes: number, slots: number): void {
  if (wantedBytes <= freeBytes) return;
  throw new OdmoeError(
    'DEVICE_OUT_OF_MEMORY',
    `The pools of worker.pools take ${wantedBytes} bytes of device memory, and beside ${slots} slots the budget has ` +
      `${freeBytes} left: make the pools smaller or give the worker a larger memory budget.`,
  );
}
