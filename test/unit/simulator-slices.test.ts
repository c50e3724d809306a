/** Simulated clusters of a sliced quality: workers load and cache slices as real ones do. */
import assert from 'node:assert/strict';
import type { SlicedQuality } from '../../shared/decisions/slices/plan-readings.js';
import type { ClusterSetUp } from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import type { SimulationResult } from '../../simulator/simulate/simulation-result.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { traceThresholds, traceWeights } from '../../simulator/trace/trace-weights.js';
import { FlatTrace, plainTimes, setUp } from './simulated-cluster-setting.js';

/** Of an expert with both slices; each slice is half of it. */
const LOAD_MS = 20;
const EXPERT_BYTES = 100;
const HIGH: SlicedQuality = { kind: 'high', split: 'sliced84' };
const LOW: SlicedQuality = { kind: 'low', split: 'sliced84' };
const CRITICAL: SlicedQuality = { kind: 'critical', split: 'sliced84', share: 0.3 };
/** A layer: 10 attention, 1 there, 3 compute, 1 back. A token has two, and 1 for the LM head. */
const TOKEN_MS = 2 * 15 + 1;

describe('a simulated cluster of a sliced quality', () => {
  const times = plainTimes(2, LOAD_MS);
  const run = (
    changes: Partial<ClusterSetUp>,
    trace: ClusterTrace = new FlatTrace(2, 8),
  ): Promise<SimulationResult> => {
    const plain = setUp({ workers: 1, prediction: { source: 'off', layersAhead: 1 }, ...changes });
    return simulateCluster(times, plain, trace, { tokens: 9 });
  };
  const near = (actual: number, expected: number): void =>
    assert.ok(Math.abs(actual - expected) < 1e-6, `${actual}, not ${expected}`);

  it('loads both slices, or upper ones alone', async () => {
    near((await run({ quality: HIGH })).tpotMs, TOKEN_MS + 2 * LOAD_MS);
    near((await run({ quality: LOW })).tpotMs, TOKEN_MS + LOAD_MS);
  });

  it('keeps the upper slices of all experts before a lower one', async () => {
    const cacheBytes = 1.5 * EXPERT_BYTES;
    // One place for lower slices that are not kept, and the upper slices of both layers' experts.
    const sliced = await run({ quality: HIGH, cacheBytes });
    assert.deepEqual(sliced.cache, { full: 0, partial: 16, misses: 2 });
    near(sliced.tpotMs, TOKEN_MS + LOAD_MS);
    assert.ok(sliced.memoryBytes.worker <= EXPERT_BYTES + cacheBytes);
  });

  it('loads nothing where all slices have room', async () => {
    const { cache, tpotMs } = await run({ quality: HIGH, cacheBytes: 3 * EXPERT_BYTES });
    assert.deepEqual(cache, { full: 16, partial: 0, misses: 2 });
    near(tpotMs, TOKEN_MS);
  });

  it('loads lower slices for the wanted share of executions', async () => {
    const trace = new SyntheticTrace({
      layers: 2,
      experts: 8,
      expertsPerToken: 2,
      prompts: 1,
      promptTokens: 1,
      iterations: 8,
      recall: 1,
      acceptance: 1,
      seed: 1,
    });
    const [high, critical, low] = await Promise.all(
      [HIGH, CRITICAL, LOW].map(async (quality) => (await run({ quality, slots: 2 }, trace)).tpotMs),
    );
    assert.ok((low ?? 0) < (critical ?? 0) && (critical ?? 0) < (high ?? 0), `${low} < ${critical} < ${high}`);
  });

  it('draws weights of which that share is critical, and none for one expert a token', () => {
    assert.deepEqual(traceThresholds(1), []);
    for (const expertsPerToken of [2, 8]) {
      const { theta = 0 } =
        traceThresholds(expertsPerToken).find(({ critical }) => Math.abs(critical - 0.3) < 0.02) ?? {};
      const experts = Array.from({ length: expertsPerToken }, (_, index) => 5 * index);
      const weights = Array.from({ length: 400 }, (_, position) => [
        ...traceWeights({ prompt: 3, position, onPath: position % 2 === 0 }, 7, experts),
      ]).flat();
      const share = weights.filter((weight) => weight >= theta).length / weights.length;
      assert.ok(Math.abs(share - 0.3) < 0.05, `${share} of ${expertsPerToken} experts a token`);
    }
  });
});
