import assert from 'node:assert/strict';
import { RoutingTrace } from '../../bench/pools/routing-trace.js';
import { measurePools, MEASURED_POLICIES } from '../../bench/pools/measure-pools.js';
import { poolsPlot, poolsTable } from '../../bench/pools/pools-report.js';
import { withSyntheticPack } from '../../bench/pools/synthetic-pack.js';
import { measureSchedules } from '../../bench/schedule/measure-schedules.js';
import { openDevice } from '../../native/index.js';

const TRACE = { layers: 2, experts: 8, activated: 3, skew: 1, seed: 5 };

function shares(trace: RoutingTrace, layer: number): number[] {
  const counts = new Array<number>(TRACE.experts).fill(0);
  for (let token = 0; token < 2000; token += 1) {
    for (const expert of trace.experts(token, layer)) counts[expert] = (counts[expert] ?? 0) + 1 / 2000;
  }
  return counts;
}

describe('routing traces', () => {
  it('give each token different experts, the same for the same seed', () => {
    const trace = new RoutingTrace(TRACE);
    for (let token = 0; token < 50; token += 1) {
      const experts = trace.experts(token, 1);
      assert.equal(new Set(experts).size, TRACE.activated);
      assert.deepEqual(new RoutingTrace(TRACE).experts(token, 1), experts);
    }
    assert.notDeepEqual(
      Array.from({ length: 20 }, (_, token) => trace.experts(token, 0)),
      Array.from({ length: 20 }, (_, token) => new RoutingTrace({ ...TRACE, seed: 6 }).experts(token, 0)),
    );
  });

  it('are as skewed as asked for, with popular experts of each layer', () => {
    const flat = shares(new RoutingTrace({ ...TRACE, skew: 0 }), 0);
    for (const share of flat) assert.ok(Math.abs(share - 3 / 8) < 0.06, String(share));
    const skewed = shares(new RoutingTrace({ ...TRACE, skew: 1.5 }), 0);
    assert.ok(Math.max(...skewed) > 0.85);
    assert.ok(Math.min(...skewed) < 0.2);
    const other = shares(new RoutingTrace({ ...TRACE, skew: 1.5 }), 1);
    assert.notDeepEqual(
      skewed.map((share) => share > 0.5),
      other.map((share) => share > 0.5),
    );
  });
});

describe('bench pools', () => {
  it('runs every policy at every point with the native loader', async function () {
    this.timeout(60_000);
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    const shape = { layers: 2, experts: 6, activated: 2, hidden: 64, intermediate: 96, shards: 2 };
    const codec = { codec: 'huffman', level: null } as const;
    let last = [0, 1];
    try {
      const results = await withSyntheticPack({ ...shape, codec }, new AbortController().signal, (pack) =>
        measurePools(
          device,
          pack,
          {
            traces: [{ name: 'flat', skew: 0 }],
            ...{ storageRates: [0], budgetShares: [0.4, 1], warmTokens: 2, tokens: 4, rounds: 2, recordedTokens: 50 },
            ...{ decompressionThreads: 1, directIo: false, seed: 1 },
          },
          {
            signal: new AbortController().signal,
            nowMs: () => performance.now(),
            onProgress: (done, total) => (last = [done, total]),
          },
        ),
      );
      assert.equal(results.length, 2 * MEASURED_POLICIES.length);
      assert.equal(last[0], last[1]);
      for (const result of results) {
        assert.ok(result.layerMakespanMs > 0);
        assert.ok(result.usedBytes <= result.budgetBytes);
        assert.equal(result.tpotMs, 2 * result.layerMakespanMs);
        if (result.policy === 'none') assert.equal(result.hitShare, 0);
      }
      const whole = results.filter(({ budgetShare, policy }) => budgetShare === 1 && policy !== 'none');
      for (const { fullHitShare } of whole) assert.ok(fullHitShare > 0.4);
      assert.equal(poolsTable(results).split('\n').length, 3);
      assert.match(poolsPlot(results), /flat, unthrottled/);
    } finally {
      device.dispose();
    }
  });
});

describe('bench schedule', () => {
  it('keeps its guarantee, and is the same for the same seed', () => {
    const results = measureSchedules({ instances: 60, experts: 6, seed: 3 }, () => 0);
    assert.deepEqual(
      measureSchedules({ instances: 60, experts: 6, seed: 3 }, () => 0),
      results,
    );
    for (const { toBoundMean, ofGuaranteeWorst, toFifoMean } of results) {
      assert.ok(toBoundMean >= 1);
      assert.ok(ofGuaranteeWorst <= 1);
      assert.ok(toFifoMean < 1);
    }
  });
});
