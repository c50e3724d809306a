import { PARTS, sumOfParts } from '../../model/expert-parts.js';
import { POOLS, type Pool, type PoolCapacities } from '../../settings/cache-policies.js';
import { OdmoeError } from '../../base/errors/odmoe-error.js';
import { ExpectedMakespan } from './expected-makespan.js';
import { patternMakespans, type OverlapCosts } from './makespan-estimate.js';
import type { LoadTimes } from './load-times.js';
import {
  bytesInPool,
  NO_CAPACITIES,
  perPool,
  poolBytes,
  spreadCapacities,
  sumOfPools,
  type PerEntryKind,
} from './pool-capacities.js';
import { fitSelectionProbabilities } from './selection-model.js';

export interface PlanRequest {
  /** Inclusion probabilities by rank, summing to `activated` (inclusionProbabilities). */
  inclusion: ArrayLike<number>;
  /** k: experts of a layer that are activated on this worker at a time. */
  activated: number;
  /** Layers that share the budget. */
  layers: number;
  budgetBytes: number;
  /** Device bytes of one entry of each kind. */
  entryBytes: PerEntryKind<number>;
  /** Lambda: pools that may be used. */
  pools: readonly Pool[];
  loadTimes: LoadTimes;
  costs: OverlapCosts;
  /** Step of the pools' shares of the budget; default 1/20. */
  step?: number;
}

export interface PoolPlan {
  /** Capacities of all layers together. */
  totals: PoolCapacities;
  /** Capacities of each layer. Layers differ by at most one expert of a pool. */
  capacities: PoolCapacities[];
  usedBytes: number;
  /** Mean makespan over the layers. */
  makespanMs: number;
}

export interface PoolPlans {
  planned: PoolPlan;
  fullOnly: PoolPlan;
  none: PoolPlan;
}

const DEFAULT_STEP = 1 / 20;
/** Best plans of the grid that are improved further, and most single steps for each. */
const CLIMBED_PLANS = 8;
const CLIMB_STEPS = 100;
/**
 * Least gain that a plan with parts of experts must promise over full experts alone. A smaller gain is within the model's own error, and full
 * experts leave the processor free for other work.
 */
const LEAST_GAIN = 0.07;

/**
 * Divides a budget among the pools (ZipMoE Algorithm 4): first a grid over the pools' shares, then steps of single experts as long as they help.
 * Capacities are counted over all layers, so that a budget of less than one expert a layer is also used. The plan is never expected to be slower
 * than full experts alone or no cache.
 * @throws INTERNAL for a request that contradicts itself
 */
export function planPools(request: PlanRequest): PoolPlans {
  checkRequest(request);
  const search = new PlanSearch(request);
  const none = search.plan(NO_CAPACITIES);
  const fullOnly = search.better(search.plan(search.fitting({ ...NO_CAPACITIES, full: 1 })), none);
  const found = new Set(request.pools.includes('full') ? [fullOnly, none] : [none]);
  for (const shares of poolShares(request.pools, request.step ?? DEFAULT_STEP)) {
    found.add(search.plan(search.fitting(shares)));
  }
  const starts = [...found].sort((left, right) => left.makespanMs - right.makespanMs).slice(0, CLIMBED_PLANS);
  const best = starts.map((start) => search.climb(start)).reduce((left, right) => search.better(right, left));
  const isWorth = best.makespanMs < (1 - LEAST_GAIN) * fullOnly.makespanMs;
  return { planned: isWorth || !request.pools.includes('full') ? best : fullOnly, fullOnly, none };
}

/** The plan with these capacities of all layers together. @throws INTERNAL for a request that contradicts itself */
export function planOfTotals(request: PlanRequest, totals: PoolCapacities): PoolPlan {
  checkRequest(request);
  return new PlanSearch(request).plan(totals);
}

class PlanSearch {
  private readonly expected: ExpectedMakespan;
  private readonly request: PlanRequest;
  private readonly experts: number;
  private readonly layerNumbers: readonly number[];
  private readonly known = new Map<string, PoolPlan>();

  constructor(request: PlanRequest) {
    const { inclusion, activated, loadTimes, costs } = request;
    this.request = request;
    this.experts = inclusion.length;
    this.layerNumbers = Array.from({ length: request.layers }, (_, layer) => layer);
    const selection = fitSelectionProbabilities(inclusion);
    this.expected = new ExpectedMakespan(selection, activated, patternMakespans(activated, loadTimes, costs));
  }

  /** As many experts of each pool as its share of the budget holds, but not more in all than exist. */
  fitting(shares: PoolCapacities): PoolCapacities {
    const { budgetBytes, entryBytes } = this.request;
    let room = this.experts * this.layerNumbers.length;
    let leftBytes = budgetBytes;
    const take = (pool: Pool): number => {
      const bytes = bytesInPool(pool, entryBytes);
      // An expert of one plane has no second part: a pool of such parts holds nothing.
      if (bytes === 0) return 0;
      // Guards against rounding: a share of 7 / 20 of 20 experts must be exactly 7 of them.
      const wanted = Math.floor((shares[pool] * budgetBytes * (1 + Number.EPSILON)) / bytes + 1e-9);
      const count = Math.max(0, Math.min(wanted, room, Math.floor(leftBytes / bytes)));
      room -= count;
      leftBytes -= count * bytes;
      return count;
    };
    return perPool(take);
  }

  plan(totals: PoolCapacities): PoolPlan {
    const key = POOLS.map((pool) => totals[pool]).join(' ');
    let plan = this.known.get(key);
    if (plan === undefined) {
      const capacities = [...spreadCapacities(totals, this.layerNumbers, this.experts).values()];
      const sumMs = capacities.reduce((sum, each) => sum + this.expected.of(each), 0);
      plan = {
        totals,
        capacities,
        usedBytes: poolBytes(totals, this.request.entryBytes),
        makespanMs: sumMs / capacities.length,
      };
      this.known.set(key, plan);
    }
    return plan;
  }

  better(candidate: PoolPlan, best: PoolPlan): PoolPlan {
    return candidate.makespanMs < best.makespanMs ? candidate : best;
  }

  /** Adds an expert, or exchanges one for one or two of another pool, as long as that helps. */
  climb(from: PoolPlan): PoolPlan {
    let best = from;
    for (let step = 0; step < CLIMB_STEPS; step += 1) {
      const next = this.neighbours(best.totals).reduce((found, totals) => this.better(this.plan(totals), found), best);
      if (next === best) break;
      best = next;
    }
    return best;
  }

  private neighbours(totals: PoolCapacities): PoolCapacities[] {
    const changes: Partial<Record<Pool, number>>[] = [];
    for (const added of this.request.pools) {
      changes.push({ [added]: 1 });
      for (const removed of this.request.pools) {
        if (removed !== added) changes.push({ [added]: 1, [removed]: -1 }, { [added]: 2, [removed]: -1 });
      }
    }
    return changes
      .map((change) => perPool((pool) => totals[pool] + (change[pool] ?? 0)))
      .filter((changed) => this.fits(changed));
  }

  private fits(totals: PoolCapacities): boolean {
    const experts = sumOfPools((pool) => totals[pool]);
    const isWhole = POOLS.every((pool) => totals[pool] >= 0);
    const hasRoom = experts <= this.experts * this.layerNumbers.length;
    return isWhole && hasRoom && poolBytes(totals, this.request.entryBytes) <= this.request.budgetBytes;
  }
}

/** Every way to divide 1 among the pools in steps. */
function* poolShares(pools: readonly Pool[], step: number): Generator<PoolCapacities> {
  const steps = Math.round(1 / step);
  const used = POOLS.filter((pool) => pools.includes(pool));
  function* divide(index: number, left: number, shares: PoolCapacities): Generator<PoolCapacities> {
    const pool = used[index];
    if (pool === undefined) return;
    if (index === used.length - 1) {
      yield { ...shares, [pool]: left / steps };
      return;
    }
    for (let taken = 0; taken <= left; taken += 1)
      yield* divide(index + 1, left - taken, { ...shares, [pool]: taken / steps });
  }
  yield* divide(0, steps, NO_CAPACITIES);
}

function checkRequest({ inclusion, activated, layers, budgetBytes, entryBytes }: PlanRequest): void {
  const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;
  const sum = Array.from(inclusion).reduce((total, probability) => total + probability, 0);
  const problem =
    !isCount(activated) || activated > inclusion.length
      ? `${activated} of ${inclusion.length} experts activated`
      : Math.abs(sum - activated) > 1e-6
        ? `inclusion probabilities that sum to ${sum}, with ${activated} experts activated`
        : !isCount(layers) || layers < 1
          ? `${layers} layers`
          : !(budgetBytes >= 0)
            ? `a budget of ${budgetBytes} bytes`
            : !(entryBytes.full > 0 && sumOfParts(entryBytes) > 0 && PARTS.every((part) => entryBytes[part] >= 0))
              ? 'entries without bytes'
              : null;
  if (problem !== null) throw new OdmoeError('INTERNAL', `pools cannot be planned for ${problem}`);
}
