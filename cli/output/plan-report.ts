import { type Pool, POOLS } from '../../shared/settings/cache-policies.js';
import type { MachineTimes } from '../../engine/planning/fit-machine-times.js';
import type { CachePlans } from '../../engine/planning/plan-cache.js';
import type { SlotSizes } from '../../engine/planning/slot-sizes.js';
import type { Pack } from '../../packs/format/open-pack.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { formatBytes } from '../../shared/base/text/units.js';
import type { PoolPlan } from '../../shared/decisions/caching/plan-pools.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { offerLines, offersObject, type PlannedOffer } from './sliced-offers-report.js';
import { tableLines } from './table.js';
import { bytesInPool, perPool } from '../../shared/decisions/caching/pool-capacities.js';

/** The result of `odmoe plan`. */
export interface PlanOutcome {
  pack: Pack;
  budgetBytes: number;
  /** Experts of a layer that one token needs from the worker, and layers that share the budget. */
  activated: number;
  layers: number;
  sizes: SlotSizes;
  times: MachineTimes;
  counts: ActivationCounts | null;
  plans: CachePlans;
  /** Slices in place of the pack's experts. */
  offers: PlannedOffer[];
}

const POOL_NAMES: Readonly<Record<Pool, string>> = {
  full: 'F whole',
  compressed: 'C compressed',
  signMantissa: 'S signs and mantissas',
  exponent: 'E exponents',
};

/** The object that `odmoe plan --json` prints. */
export function planObject({
  pack,
  budgetBytes,
  activated,
  layers,
  sizes,
  times,
  counts,
  plans,
  offers,
}: PlanOutcome): unknown {
  const { planned, fullOnly, none, isAssumed } = plans;
  return snakeCaseKeys({
    model: pack.name,
    packDigest: pack.packDigest,
    budgetBytes,
    activated,
    layers,
    recordedActivations: counts?.total ?? 0,
    isAssumed,
    profile: { ...times.load, ...times.costs },
    entryBytes: sizes.entryBytes,
    planned: planFigures(planned),
    fullOnly: planFigures(fullOnly),
    none: planFigures(none),
    worker: { cache: budgetBytes, cachePolicy: 'planned', pools: planned.totals },
    sliced: offersObject(offers),
  });
}

function planFigures({ totals, usedBytes, makespanMs }: PoolPlan): unknown {
  return { pools: totals, usedBytes, layerMakespanMs: makespanMs };
}

/** The same for people. */
export function cachePlanLines(outcome: PlanOutcome): string[] {
  return [
    ...situationLines(outcome),
    '',
    ...poolLines(outcome),
    '',
    ...expectationLines(outcome),
    '',
    ...useLines(outcome),
    '',
    ...offerLines(outcome.offers, 'speed is that of a layer with a cache of slices in the same memory, over this plan'),
  ];
}

function situationLines({ pack, budgetBytes, activated, layers, times, counts, plans }: PlanOutcome): string[] {
  const { signMantissaReadMs: u, exponentReadMs: v, decompressMs: c, compressionRatio, threads, shards } = times.load;
  const popularity = plans.isAssumed
    ? 'none recorded: a mild skew is assumed; give --counts once a worker has run with a cache'
    : `${counts?.total.toLocaleString('en') ?? 0} activations recorded`;
  return [
    `${pack.name}: ${layers} layers of ${pack.shape.experts} experts, ${activated} at a time; ${formatByteSize(budgetBytes)} for the cache`,
    `  reading       u ${milliseconds(u)} signs and mantissas of a matrix, v ${milliseconds(v)} one of its ${shards} chunks of exponents`,
    `  decompressing c ${milliseconds(c)} a chunk on ${threads} ${threads === 1 ? 'thread' : 'threads'}; rho ${compressionRatio.toFixed(3)}`,
    `  executing     ${milliseconds(times.costs.executeMs)} an expert`,
    `  popularity    ${popularity}`,
  ];
}

function poolLines({ plans, layers, sizes }: PlanOutcome): string[] {
  const bytes = perPool((pool) => bytesInPool(pool, sizes.entryBytes));
  const columns = ['pool', 'experts', 'a layer', 'of each', 'memory'].map((title, index) => ({
    title,
    align: index === 0 ? ('left' as const) : ('right' as const),
  }));
  const { totals } = plans.planned;
  return tableLines(
    columns,
    POOLS.map((pool) => [
      POOL_NAMES[pool],
      String(totals[pool]),
      (totals[pool] / layers).toFixed(1),
      formatBytes(bytes[pool]),
      formatBytes(totals[pool] * bytes[pool]),
    ]),
  );
}

function expectationLines({ plans: { planned, fullOnly, none } }: PlanOutcome): string[] {
  const line = (name: string, plan: PoolPlan): string =>
    `  ${name.padEnd(20)} ${milliseconds(plan.makespanMs).padStart(10)}  ${((plan.makespanMs / none.makespanMs) * 100).toFixed(0).padStart(3)} %`;
  return [
    'expected until the experts of a layer have run:',
    line('no cache', none),
    line('whole experts only', fullOnly),
    line('this plan', planned),
  ];
}

function useLines({ budgetBytes, plans }: PlanOutcome): string[] {
  if (POOLS.every((pool) => plans.planned.totals[pool] === 0))
    return ['A cache of this size is not expected to be of use here: leave worker.cache at 0.'];
  return [
    'to use it, in the cluster.yaml of the worker (it plans by itself, and again at each start with what it has counted since):',
    '  worker:',
    `    cache: ${formatByteSize(budgetBytes).replace(' ', '')}`,
    '    cache_policy: planned',
  ];
}

function milliseconds(value: number): string {
  return `${value.toPrecision(3)} ms`;
}
