import { CachedLayers } from './cached-layers.js';
import { RoutingTrace, type TraceSetting } from './routing-trace.js';
import type { MachineProfile } from '../../engine/planning/fit-profile.js';
import { planCache } from '../../engine/planning/plan-cache.js';
import { profileLoading } from '../../engine/planning/profile-loading.js';
import { slotSizes, type SlotSizes } from '../../engine/planning/slot-sizes.js';
import type { Device } from '../../native/index.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { ActivationCounts } from '../../shared/planner/activation-counts.js';
import { type PoolCapacities, POOLS } from '../../shared/planner/pool-capacities.js';
import type { CachePolicy } from '../../shared/planner/cache-decisions.js';
import type { CompressionState } from '../../shared/planner/load-profile.js';
import type { PoolPlan, PoolPlans } from '../../shared/planner/plan-pools.js';

/** Residency follows the time of whole passes, which this benchmark has none of. */
export type MeasuredPolicy = Exclude<CachePolicy, 'residency' | 'popularity'> | 'none';
export const MEASURED_POLICIES = [
  'planned',
  'lru',
  'fifo',
  'marking',
  'none',
] as const satisfies readonly MeasuredPolicy[];

export interface PoolsBenchSetting {
  traces: readonly { name: string; skew: number }[];
  /** Bytes a second; 0: unthrottled. */
  storageRates: readonly number[];
  /** Budgets as shares of all experts' full size. */
  budgetShares: readonly number[];
  /** Tokens that are run before measuring, and those that are measured at least (tokensAt). */
  warmTokens: number;
  tokens: number;
  /** Of each layer of each token the fastest of so many runs counts: a shared machine is slow at one moment or another. */
  rounds: number;
  /** Tokens whose activations are taken as recorded earlier. */
  recordedTokens: number;
  decompressionThreads: number;
  directIo: boolean;
  seed: number;
}

/** One policy at one point. */
export interface PoolsBenchResult {
  trace: string;
  storageBytesPerS: number;
  budgetShare: number;
  budgetBytes: number;
  policy: MeasuredPolicy;
  /** Mean over tokens and layers. */
  layerMakespanMs: number;
  /** All layers of a token, one after the other. */
  tpotMs: number;
  /** What the model expects of a layer with the plan, with whole experts only (the most popular ones) and without a cache. */
  expected: { plannedMs: number; fullOnlyMs: number; noneMs: number };
  profile: MachineProfile;
  capacities: PoolCapacities;
  usedBytes: number;
  /** Share of uses whose expert was whole, and of those of which something was in memory. */
  fullHitShare: number;
  hitShare: number;
}

export interface PoolsBenchProgress {
  signal: AbortSignal;
  nowMs: () => number;
  onProgress: (done: number, total: number) => void;
}

/** Runs every policy at every point on the same tokens, token by token in turn, so that a machine that is busy slows all alike. */
export async function measurePools(
  device: Device,
  pack: Pack,
  setting: PoolsBenchSetting,
  progress: PoolsBenchProgress,
): Promise<PoolsBenchResult[]> {
  const results: PoolsBenchResult[] = [];
  const tokensOfPoints = setting.budgetShares.reduce(
    (sum, share) => sum + setting.warmTokens + tokensAt(share, setting),
    0,
  );
  const total = setting.traces.length * setting.storageRates.length * setting.rounds * tokensOfPoints;
  let done = 0;
  const countToken = (): void => {
    progress.signal.throwIfAborted();
    progress.onProgress((done += 1), total);
  };
  for (const storageBytesPerS of setting.storageRates) {
    const { decompressionThreads, directIo } = setting;
    const sizes = slotSizes(device, pack, { decompressionThreads, directIo, storageBytesPerS });
    for (const { name, skew } of setting.traces) {
      const { expertLayers: layers, experts, expertsPerToken: activated } = pack.shape;
      const traceSetting: TraceSetting = { layers, experts, activated, skew, seed: setting.seed };
      for (const budgetShare of setting.budgetShares) {
        const profile = await profileLoading(device, pack, sizes, activated, progress.nowMs);
        const point = new Point(device, pack, { sizes, profile, budgetShare }, new RoutingTrace(traceSetting));
        const measured = await point.measure(setting, progress.nowMs, countToken);
        results.push(...measured.map((result) => ({ trace: name, storageBytesPerS, ...result })));
      }
    }
  }
  return results;
}

/** Most times the tokens of a point are taken because misses are rare. */
const MOST_REPEATS = 9;

/**
 * Tokens measured with a budget: the more it holds, the fewer misses there are, and the more tokens it takes to count them equally
 * well.
 */
function tokensAt(budgetShare: number, { tokens }: PoolsBenchSetting): number {
  const hitsForEachMiss = budgetShare / Math.max(1 - budgetShare, Number.MIN_VALUE);
  return Math.ceil(tokens * Math.min(MOST_REPEATS, Math.max(1, MOST_REPEATS * (hitsForEachMiss / 3))));
}

interface PointSetting {
  sizes: SlotSizes;
  profile: MachineProfile;
  budgetShare: number;
}

/** One policy at one point; a list of layers' times for each round. */
interface Timing {
  policy: MeasuredPolicy;
  plan: PoolPlan;
  roundsMs: number[][];
  uses: Record<CompressionState, number> | null;
}

interface Runner {
  timing: Timing;
  cached: CachedLayers;
  layersMs: number[];
}

type PointResult = Omit<PoolsBenchResult, 'trace' | 'storageBytesPerS'>;

/** One trace, storage and budget. */
class Point {
  private readonly ownBudgetBytes: number;

  constructor(
    private readonly device: Device,
    private readonly pack: Pack,
    private readonly setting: PointSetting,
    private readonly trace: RoutingTrace,
  ) {
    const { expertLayers: layers, experts } = pack.shape;
    this.ownBudgetBytes = Math.round(setting.budgetShare * layers * experts * setting.sizes.entryBytes.full);
  }

  async measure(bench: PoolsBenchSetting, nowMs: () => number, countToken: () => void): Promise<PointResult[]> {
    const counts = this.record(bench.recordedTokens);
    const plans = this.ownPlan(counts);
    const timings = MEASURED_POLICIES.map((policy): Timing => {
      const plan = policy === 'none' ? plans.none : policy === 'planned' ? plans.planned : plans.fullOnly;
      return { policy, plan, roundsMs: [], uses: null };
    });
    for (let round = 0; round < bench.rounds; round += 1)
      await this.runRound(timings, counts, bench, nowMs, countToken);
    const { planned, fullOnly, none } = plans;
    const expected = { plannedMs: planned.makespanMs, fullOnlyMs: fullOnly.makespanMs, noneMs: none.makespanMs };
    return timings.map((timing) => ({ ...this.result(timing), expected }));
  }

  /** Every policy from an empty cache on; decisions, and so what is read, are the same in each round. */
  private async runRound(
    timings: readonly Timing[],
    counts: ActivationCounts,
    bench: PoolsBenchSetting,
    nowMs: () => number,
    countToken: () => void,
  ): Promise<void> {
    const runners = timings.map((timing) => this.runner(timing, counts));
    try {
      for (let token = 0; token < bench.warmTokens + tokensAt(this.setting.budgetShare, bench); token += 1) {
        countToken();
        // The one that goes first changes, as it may meet other caches of the processor than those that follow.
        for (let turn = 0; turn < runners.length; turn += 1) {
          const runner = runners[(turn + token) % runners.length];
          if (runner !== undefined) await this.runToken(runner, token, bench, nowMs);
        }
      }
      for (const { timing, layersMs, cached } of runners) {
        timing.roundsMs.push(layersMs);
        timing.uses = cached.pools.counters.uses;
      }
    } finally {
      for (const { cached } of runners) cached.dispose();
    }
  }

  private async runToken(runner: Runner, token: number, bench: PoolsBenchSetting, nowMs: () => number): Promise<void> {
    // Without a cache a layer takes the same however many tokens went before.
    if (runner.timing.policy === 'none' && token >= bench.warmTokens + bench.tokens) return;
    for (let layer = 0; layer < this.pack.shape.expertLayers; layer += 1) {
      const experts = this.trace.experts(bench.recordedTokens + token, layer);
      const makespanMs = await runner.cached.run(layer, experts, nowMs);
      if (token >= bench.warmTokens) runner.layersMs.push(makespanMs);
    }
  }

  private runner(timing: Timing, counts: ActivationCounts): Runner {
    const { policy, plan } = timing;
    const { sizes, profile } = this.setting;
    const cached = new CachedLayers(this.device, this.pack, {
      ...{ policy: policy === 'none' ? 'lru' : policy, capacities: plan.totals, sizes, profile },
      counts: policy === 'planned' ? counts : null,
    });
    return { timing, cached, layersMs: [] };
  }

  private result({ policy, plan, roundsMs, uses }: Timing): Omit<PointResult, 'expected'> {
    const steps = roundsMs[0]?.map((_, step) => Math.min(...roundsMs.map((round) => round[step] ?? 0))) ?? [];
    const layerMakespanMs = steps.reduce((sum, each) => sum + each, 0) / steps.length;
    const all = Object.values(uses ?? {}).reduce((sum, count) => sum + count, 0);
    return {
      ...{ budgetShare: this.setting.budgetShare, budgetBytes: this.ownBudgetBytes, profile: this.setting.profile },
      ...{ policy, layerMakespanMs, tpotMs: layerMakespanMs * this.pack.shape.expertLayers },
      ...{ capacities: plan.totals, usedBytes: plan.usedBytes },
      fullHitShare: (uses?.full ?? 0) / all,
      hitShare: 1 - (uses?.missing ?? 0) / all,
    };
  }

  private record(tokens: number): ActivationCounts {
    const { packDigest, shape } = this.pack;
    const counts = new ActivationCounts(packDigest, shape.experts);
    for (let token = 0; token < tokens; token += 1) {
      for (let layer = 0; layer < shape.expertLayers; layer += 1) {
        for (const expert of this.trace.experts(token, layer)) counts.add(layer, expert, 1);
      }
    }
    return counts;
  }

  private ownPlan(counts: ActivationCounts): PoolPlans {
    const { expertLayers: layers, experts, expertsPerToken: activated } = this.pack.shape;
    const { sizes, profile } = this.setting;
    const { entryBytes } = sizes;
    const request = { budgetBytes: this.ownBudgetBytes, entryBytes, layers, experts, activated, counts, pools: POOLS };
    return planCache(request, profile);
  }
}
