import { type PoolCapacities, POOLS } from '../../shared/settings/cache-policies.js';
import type { MachineTimes } from '../../engine/planning/fit-machine-times.js';
import { planCache, type CacheRequest } from '../../engine/planning/plan-cache.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { NO_CAPACITIES, poolBytes } from '../../shared/decisions/caching/pool-capacities.js';
import { fillBudget, residencyCosts } from './cache-residency.js';
import { sumOfParts } from '../../shared/model/expert-parts.js';

/** A worker's cache may use all pools. */
export type WorkerCacheRequest = Omit<CacheRequest, 'pools'>;

export interface CachePlan {
  /** Total of all layers. */
  capacities: PoolCapacities;
  usedBytes: number;
  /** Expected time of a layer's loads with this plan and without a cache; null if it was not estimated. */
  expected: { plannedMs: number; cachelessMs: number } | null;
}

/**
 * The plan with room for the experts of a head behind the model's layers, in what it leaves of the budget: `headEntries` for full ones. Where it leaves
 * nothing, the head's experts share the pools of the model's.
 */
export function withHeadEntries(
  plan: CachePlan,
  { budgetBytes, entryBytes, experts }: Pick<WorkerCacheRequest, 'budgetBytes' | 'entryBytes' | 'experts'>,
): { plan: CachePlan; headEntries: number } {
  const headEntries = Math.min(experts, Math.max(0, Math.floor((budgetBytes - plan.usedBytes) / entryBytes.full)));
  const capacities = { ...plan.capacities, full: plan.capacities.full + headEntries };
  return { plan: { ...plan, capacities, usedBytes: plan.usedBytes + headEntries * entryBytes.full }, headEntries };
}

/** Full experts only: as many as the budget holds. */
export function planFullExperts({ budgetBytes, entryBytes, layers, experts }: WorkerCacheRequest): CachePlan {
  const full = Math.min(layers * experts, Math.floor(budgetBytes / entryBytes.full));
  return { capacities: { ...NO_CAPACITIES, full }, usedBytes: full * entryBytes.full, expected: null };
}

/** The best division of the budget for this machine, from the recorded counts of the layers that it served. */
export function planForMachine(request: WorkerCacheRequest, times: MachineTimes): CachePlan {
  const served = request.counts?.layers.length ?? 0;
  const layers = served === 0 ? request.layers : served;
  const { planned, none } = planCache({ ...request, layers, pools: POOLS }, times);
  return {
    capacities: planned.totals,
    usedBytes: planned.usedBytes,
    expected: { plannedMs: planned.makespanMs, cachelessMs: none.makespanMs },
  };
}

/** For the policy residency: the most useful capacities that the budget holds, before any pass was measured. */
export function planStates(
  { budgetBytes, entryBytes, layers, experts }: WorkerCacheRequest,
  { load }: MachineTimes,
): CachePlan {
  const expertBytes = { full: entryBytes.full, compressed: sumOfParts(entryBytes) };
  // Parts of a pack without a codec take as many bytes as the expert: caching them in place of full experts frees nothing.
  const isSmaller = expertBytes.compressed < expertBytes.full;
  const capacities = isSmaller
    ? fillBudget({ experts, layers, bytes: budgetBytes }, residencyCosts(load, expertBytes, 1))
    : { ...NO_CAPACITIES, full: Math.min(experts * layers, Math.floor(budgetBytes / expertBytes.full)) };
  const usedBytes = poolBytes(capacities, entryBytes);
  assertInvariant(usedBytes <= budgetBytes, 'a residency plan stays within its budget');
  return { capacities, usedBytes, expected: null };
}

/** Throws DEVICE_OUT_OF_MEMORY when the pools that the settings list do not fit. */
export function requirePools(wantedBytes: number, freeBytes: number, slots: number): void {
  if (wantedBytes <= freeBytes) return;
  throw new OdmoeError(
    'DEVICE_OUT_OF_MEMORY',
    `The pools of worker.pools take ${wantedBytes} bytes of device memory, and beside ${slots} slots the budget has ` +
      `${Math.max(0, freeBytes)} left: make the pools smaller or give the worker a larger memory budget.`,
  );
}
