import { type PoolCapacities, POOLS } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { addCapacities, NO_CAPACITIES, spreadCapacities } from '../../shared/decisions/caching/pool-capacities.js';
import {
  assumedInclusionProbabilities,
  fitSelectionProbabilities,
} from '../../shared/decisions/caching/selection-model.js';
import {
  estimateMakespan,
  type OverlapCosts,
  patternMakespans,
} from '../../shared/decisions/caching/makespan-estimate.js';
import { ExpectedMakespan } from '../../shared/decisions/caching/expected-makespan.js';
import { planPools, type PlanRequest, type PoolPlan } from '../../shared/decisions/caching/plan-pools.js';
import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';

const LOAD_TIMES: LoadTimes = {
  signMantissaReadMs: 1,
  exponentReadMs: 0.09,
  decompressMs: 0.05,
  compressionRatio: 0.36,
  threads: 2,
  shards: 4,
  tensors: 3,
};
const ENTRY_BYTES = { full: 6e6, exponent: 1.1e6, signMantissa: 3e6 };

/** No costs at all. */
const NO_OVERLAP_COSTS: OverlapCosts = { executeMs: 0, startMs: 0, interference: 0 };
const EXECUTION = { ...NO_OVERLAP_COSTS, executeMs: 0.1 };

function requestOf(change: Partial<PlanRequest> = {}): PlanRequest {
  return {
    inclusion: assumedInclusionProbabilities(16, 2, 0.8),
    activated: 2,
    layers: 3,
    budgetBytes: 60e6,
    entryBytes: ENTRY_BYTES,
    pools: POOLS,
    loadTimes: LOAD_TIMES,
    costs: EXECUTION,
    ...change,
  };
}

function bytesOf({ full, compressed, signMantissa, exponent }: PoolCapacities): number {
  return (
    full * ENTRY_BYTES.full +
    (compressed + signMantissa) * ENTRY_BYTES.signMantissa +
    (compressed + exponent) * ENTRY_BYTES.exponent
  );
}

describe('estimateMakespan (Algorithm 3)', () => {
  it('is all reading, or all decompression with the reads it waits for, over the threads', () => {
    const slow = { ...LOAD_TIMES, decompressMs: 10 };
    assert.equal(
      estimateMakespan(4, { full: 1, compressed: 1, signMantissa: 1, exponent: 0 }, LOAD_TIMES),
      3 + 24 * 0.09,
    );
    const hits = { full: 1, compressed: 1, signMantissa: 0, exponent: 1 };
    assert.equal(estimateMakespan(4, hits, slow), (12 * 0.09 + 36 * 10) / 2);
    assert.equal(estimateMakespan(2, { ...NO_CAPACITIES, full: 2 }, LOAD_TIMES), 0);
  });
});

describe('makespan of a pattern', () => {
  it('does not grow with more parts in memory', () => {
    const makespanOf = patternMakespans(4, LOAD_TIMES, { ...NO_OVERLAP_COSTS, executeMs: 0.2 });
    const hits = { full: 0, compressed: 0, signMantissa: 1, exponent: 1 };
    const base = makespanOf(hits);
    assert.ok(makespanOf({ ...hits, full: 1 }) <= base);
    assert.ok(makespanOf({ ...hits, compressed: 1 }) <= base);
    assert.ok(makespanOf({ ...hits, signMantissa: 2 }) <= base);
  });

  it('grows by the start of loading, and by the cost of overlapping', () => {
    const hits = { ...NO_CAPACITIES, full: 2, exponent: 2 };
    const plain = patternMakespans(4, LOAD_TIMES, NO_OVERLAP_COSTS)(hits);
    const costly = patternMakespans(4, LOAD_TIMES, { executeMs: 0, startMs: 3, interference: 0.5 });
    const decompressingMs = (24 * 0.05) / 2;
    assert.ok(Math.abs(costly(hits) - plain - 3 - decompressingMs / 2) < 1e-9);
    assert.equal(costly({ ...NO_CAPACITIES, full: 4 }), 0);
  });

  it('is the executions alone when everything is in memory', () => {
    assert.equal(
      patternMakespans(4, LOAD_TIMES, { ...NO_OVERLAP_COSTS, executeMs: 0.2 })({ ...NO_CAPACITIES, full: 4 }),
      0.8,
    );
  });

  it('is estimated where patterns are too many to simulate', () => {
    const hits = { ...NO_CAPACITIES, compressed: 10 };
    const expected = estimateMakespan(24, hits, LOAD_TIMES) + 0.2;
    assert.equal(patternMakespans(24, LOAD_TIMES, { ...NO_OVERLAP_COSTS, executeMs: 0.2 })(hits), expected);
  });
});

describe('the spread of capacities over layers', () => {
  it('uses all of them, and layers differ by one of a pool at most', () => {
    const totals = fc.record({ full: fc.nat(9), compressed: fc.nat(9), signMantissa: fc.nat(9), exponent: fc.nat(9) });
    fc.assert(
      fc.property(totals, fc.integer({ min: 1, max: 5 }), (all, layers) => {
        const spread = [...spreadCapacities(all, [...Array(layers).keys()], 40).values()];
        assert.deepEqual(spread.reduce(addCapacities, NO_CAPACITIES), { ...all });
        for (const pool of POOLS) {
          const counts = spread.map((capacities) => capacities[pool]);
          assert.ok(Math.max(...counts) - Math.min(...counts) <= 1);
        }
      }),
    );
  });
});

describe('planPools (Algorithm 4)', () => {
  it('stays within the budget and the existing experts, and is never worse than whole experts or none', () => {
    const requests = fc.record({
      experts: fc.integer({ min: 1, max: 12 }),
      skew: fc.double({ min: 0, max: 3, noNaN: true }),
      activatedShare: fc.double({ min: 0, max: 1, noNaN: true }),
      layers: fc.integer({ min: 1, max: 4 }),
      budgetBytes: fc.nat(400e6),
      decompressMs: fc.double({ min: 0, max: 2, noNaN: true }),
      pools: fc.subarray([...POOLS]),
    });
    fc.assert(
      fc.property(requests, ({ experts, skew, activatedShare, layers, budgetBytes, decompressMs, pools }) => {
        const activated = Math.round(activatedShare * Math.min(4, experts));
        const inclusion = assumedInclusionProbabilities(experts, activated, skew);
        const loadTimes = { ...LOAD_TIMES, decompressMs };
        const plans = planPools(requestOf({ inclusion, activated, layers, budgetBytes, pools, loadTimes, step: 0.1 }));
        for (const plan of Object.values(plans) as PoolPlan[]) {
          assert.ok(plan.usedBytes <= budgetBytes);
          assert.equal(plan.usedBytes, bytesOf(plan.totals));
          assert.deepEqual(plan.capacities.reduce(addCapacities, NO_CAPACITIES), plan.totals);
          for (const each of plan.capacities) assert.ok(POOLS.reduce((sum, pool) => sum + each[pool], 0) <= experts);
        }
        const { planned, fullOnly, none } = plans;
        assert.ok(planned.makespanMs <= none.makespanMs);
        if (pools.includes('full')) assert.ok(planned.makespanMs <= fullOnly.makespanMs);
        for (const pool of POOLS) if (!pools.includes(pool)) assert.equal(planned.totals[pool], 0);
      }),
      { numRuns: 60 },
    );
  });

  it('finds the best of all plans where they can be enumerated', () => {
    const request = requestOf({ inclusion: assumedInclusionProbabilities(6, 2, 0.7), layers: 1, budgetBytes: 13.3e6 });
    const selection = fitSelectionProbabilities(request.inclusion);
    const expected = new ExpectedMakespan(selection, 2, patternMakespans(2, LOAD_TIMES, EXECUTION));
    let least = Infinity;
    for (let full = 0; full <= 2; full += 1)
      for (let compressed = 0; compressed <= 3; compressed += 1)
        for (let signMantissa = 0; signMantissa <= 4; signMantissa += 1)
          for (let exponent = 0; exponent <= 6; exponent += 1) {
            const capacities = { full, compressed, signMantissa, exponent };
            const experts = full + compressed + signMantissa + exponent;
            if (experts <= 6 && bytesOf(capacities) <= 13.3e6) least = Math.min(least, expected.of(capacities));
          }
    const { planned } = planPools(request);
    assert.ok(planned.makespanMs <= least * 1.01, `${planned.makespanMs}, the best is ${least}`);
  });

  it('keeps compressed experts where storage is slow, whole ones where decompression is', () => {
    const slowStorage = planPools(requestOf({ loadTimes: { ...LOAD_TIMES, decompressMs: 0.001 } })).planned;
    assert.ok(slowStorage.totals.compressed > slowStorage.totals.full);
    const slowThreads = planPools(requestOf({ loadTimes: { ...LOAD_TIMES, decompressMs: 5 } }));
    assert.deepEqual(slowThreads.planned, slowThreads.fullOnly);
  });

  it('uses a budget of less than an expert a layer', () => {
    const { planned } = planPools(requestOf({ layers: 8, budgetBytes: 14e6 }));
    assert.ok(planned.usedBytes >= 12e6);
    assert.ok(planned.capacities.some((capacities) => POOLS.every((pool) => capacities[pool] === 0)));
  });

  it('keeps every expert whole when the budget holds all', () => {
    const { planned } = planPools(requestOf({ budgetBytes: 1e12 }));
    assert.deepEqual(planned.totals, { ...NO_CAPACITIES, full: 48 });
  });

  it('refuses requests that contradict themselves', () => {
    assert.throws(() => planPools(requestOf({ activated: 3 })), /sum to 2/);
    assert.throws(() => planPools(requestOf({ layers: 0 })), /0 layers/);
    assert.throws(() => planPools(requestOf({ budgetBytes: -1 })), /-1 bytes/);
    assert.throws(() => planPools(requestOf({ entryBytes: { ...ENTRY_BYTES, full: 0 } })), /without bytes/);
    const partless = { full: 6e6, exponent: 0, signMantissa: 0 };
    assert.throws(() => planPools(requestOf({ entryBytes: partless })), /without bytes/);
  });

  it('plans for experts whose second part has no bytes', () => {
    const loadTimes = { ...LOAD_TIMES, signMantissaReadMs: 0 };
    for (const budgetBytes of [0, 1e6, 20e6, 60e6, 1e12]) {
      const entryBytes = { full: 6e6, exponent: 5e6, signMantissa: 0 };
      const { planned, none } = planPools(requestOf({ budgetBytes, entryBytes, loadTimes }));
      for (const pool of POOLS)
        assert.ok(Number.isSafeInteger(planned.totals[pool]), `${pool} ${planned.totals[pool]}`);
      assert.equal(planned.totals.signMantissa, 0);
      assert.ok(planned.usedBytes <= budgetBytes && planned.makespanMs <= none.makespanMs);
    }
  });
});
