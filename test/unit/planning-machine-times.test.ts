import { POOLS } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { fitMachineTimes, expertBytesByPart, type MeasuredLoads } from '../../engine/planning/fit-machine-times.js';
import { ASSUMED_SKEW, planCache } from '../../engine/planning/plan-cache.js';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { assumedInclusionProbabilities } from '../../shared/decisions/caching/selection-model.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { type OverlapCosts, patternMakespans } from '../../shared/decisions/caching/makespan-estimate.js';
import { planPools } from '../../shared/decisions/caching/plan-pools.js';
import { PARTLY_LOADED_STATES, type LoadTimes } from '../../shared/decisions/caching/load-times.js';
import { recordOf, sumOfParts } from '../../shared/model/expert-parts.js';

const STORED = { exponent: 340_000, signMantissa: 1_000_000 };
const BYTES = { stored: STORED, plainExponent: 1_000_000, tensors: 3, shards: 4 };

function measuredOf(load: LoadTimes, atOnce: number, costs: OverlapCosts, readMs: number): MeasuredLoads {
  const makespanOf = patternMakespans(atOnce, load, costs);
  return {
    atOnce,
    makespanMs: recordOf(PARTLY_LOADED_STATES, (state) =>
      makespanOf(state === 'missing' ? NO_CAPACITIES : { ...NO_CAPACITIES, [state]: atOnce }),
    ),
    oneCompressedMs: patternMakespans(1, load, costs)({ ...NO_CAPACITIES, compressed: 1 }),
    executeMs: costs.executeMs,
    readMs,
  };
}

function loadOf(readMs: number, decompressMs: number, threads: number): LoadTimes {
  const all = sumOfParts(STORED);
  return {
    signMantissaReadMs: (readMs * STORED.signMantissa) / all / 3,
    exponentReadMs: (readMs * STORED.exponent) / all / 12,
    decompressMs,
    compressionRatio: 0.34,
    threads,
    shards: 4,
    tensors: 3,
  };
}

describe('fitMachineTimes', () => {
  it('finds costs with which the model reproduces the measured times', () => {
    const costs = fc.record({
      readMs: fc.double({ min: 0.2, max: 20, noNaN: true }),
      decompressMs: fc.double({ min: 0.02, max: 2, noNaN: true }),
      threads: fc.integer({ min: 1, max: 4 }),
      atOnce: fc.integer({ min: 1, max: 4 }),
      executeMs: fc.double({ min: 0, max: 0.02, noNaN: true }),
      startMs: fc.double({ min: 0, max: 1, noNaN: true }),
      interference: fc.double({ min: 0, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(costs, ({ readMs, decompressMs, threads, atOnce, ...overlap }) => {
        const measured = measuredOf(loadOf(readMs, decompressMs, threads), atOnce, overlap, readMs);
        const fitted = fitMachineTimes(measured, BYTES, threads);
        const found = measuredOf(fitted.load, atOnce, fitted.costs, readMs);
        for (const state of PARTLY_LOADED_STATES) {
          const ratio = found.makespanMs[state] / measured.makespanMs[state];
          assert.ok(ratio > 0.85 && ratio < 1.15, `${state}: ${ratio}`);
        }
        const alone = found.oneCompressedMs / measured.oneCompressedMs;
        assert.ok(alone > 0.9 && alone < 1.1, `one alone: ${alone}`);
      }),
      { numRuns: 25 },
    );
  });

  it('distinguishes slow storage from slow threads', () => {
    const costs = { executeMs: 0.1, startMs: 0.2, interference: 0 };
    const slowStorage = fitMachineTimes(measuredOf(loadOf(10, 0.05, 2), 2, costs, 10), BYTES, 2);
    assert.ok(Math.abs(slowStorage.load.signMantissaReadMs * 3 - 7.46) < 1);
    const slowThreads = fitMachineTimes(measuredOf(loadOf(0.5, 2, 2), 2, costs, 0.5), BYTES, 2);
    assert.ok(Math.abs(slowThreads.load.decompressMs - 2) < 0.1);
    assert.ok(Math.abs(slowThreads.costs.startMs - 0.2) < 0.1);
  });

  it('survives nonsense from a clock', () => {
    const nothing = recordOf(PARTLY_LOADED_STATES, () => 0);
    const { load } = fitMachineTimes(
      { atOnce: 2, makespanMs: nothing, oneCompressedMs: 0, executeMs: 0, readMs: 0 },
      BYTES,
      1,
    );
    for (const value of Object.values(load)) assert.ok(Number.isFinite(value) && value >= 0, String(value));
  });
});

describe('bytes of an expert', () => {
  it('are those of its chunks, by plane', () => {
    const chunk = (plane: number, storedBytes: number, plainBytes: number) => ({
      plane,
      storedBytes,
      plainBytes,
      path: '',
      offsetBytes: 0,
      codec: 'raw' as const,
      crc32c: null,
    });
    const chunks = [chunk(0, 10, 20), chunk(0, 11, 20), chunk(1, 40, 40)];
    const tensor = { rows: 1, columns: 40, split: 'bf16-e8-sm8' as const, chunks, view: null };
    assert.deepEqual(expertBytesByPart({ gate: tensor, up: tensor, down: tensor, biases: null }), {
      stored: { exponent: 63, signMantissa: 120 },
      plainExponent: 120,
      tensors: 3,
      shards: 2,
    });
  });
});

describe('planCache', () => {
  const times = { load: loadOf(5, 0.1, 1), costs: { executeMs: 0.1, startMs: 0.1, interference: 0.2 } };
  const entryBytes = { full: 2_000_000, exponent: 350_000, signMantissa: 1_000_000 };
  const request = {
    budgetBytes: 30_000_000,
    entryBytes,
    layers: 4,
    experts: 8,
    activated: 2,
    pools: POOLS,
    counts: null,
  };

  it('assumes a mild skew without records', () => {
    const plans = planCache(request, times);
    assert.equal(plans.isAssumed, true);
    const inclusion = assumedInclusionProbabilities(8, 2, ASSUMED_SKEW);
    const expected = planPools({ ...request, inclusion, loadTimes: times.load, costs: times.costs });
    assert.deepEqual(plans.planned, expected.planned);
  });

  it('expects more of a cache when the records are skewed', () => {
    const counts = new ActivationCounts('ab'.repeat(32), 8);
    for (let layer = 0; layer < 4; layer += 1)
      for (let expert = 0; expert < 8; expert += 1) counts.add(layer, expert, 4 ** expert);
    const plans = planCache({ ...request, counts }, times);
    assert.equal(plans.isAssumed, false);
    assert.ok(plans.planned.makespanMs < planCache(request, times).planned.makespanMs);
  });
});
