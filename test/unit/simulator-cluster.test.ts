import assert from 'node:assert/strict';
import fc from 'fast-check';
import { DraftCostMeter } from '../../main-node/decode/draft-costs.js';
import { DRAFT_SILENCE_LIMIT_MS } from '../../main-node/decode/draft-wait.js';
import { loadTiming } from '../../bench/plan/io-bound.js';
import { simulateCluster } from '../../bench/simulator/simulate-cluster.js';
import { SimulatedDrafting } from '../../bench/simulator/simulated-drafting.js';
import type { ClusterSetUp } from '../../bench/simulator/simulation-setting.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { VirtualClock } from '../../bench/simulator/virtual-clock.js';
import { FlatTrace, plainTimes, setUp } from './simulated-cluster-setting.js';

const LOAD_MS = 20;

describe('simulated cluster', () => {
  describe('two layers on two workers, added up by hand', () => {
    const times = plainTimes(LOAD_MS);
    const run = (changes: Partial<ClusterSetUp>, trace = new FlatTrace(2, 1)) =>
      simulateCluster(times, setUp({ workers: 2, ...changes }), trace, 2);

    it('prefills: both layers load ahead, main waits for the first', () => {
      // Layer 1: told at 1, loaded at 21 while attention took 10; computed 24, back 25. Layer 2: attention until 35, at the worker 36,
      // loaded since 31, computed 39, back 40; LM head 41.
      assert.equal(run({ prediction: { source: 'off' } }).ttftMs, 41);
    });

    it('decodes without predictions: each layer waits for its load', () => {
      // A layer: 10 attention, 1 there, 20 load, 3 compute, 1 back; then 1 for the LM head.
      const result = run({ prediction: { source: 'off' } });
      assert.equal(result.tpotMs, 2 * 35 + 1);
      assert.deepEqual(result.recorder.stallMs, [20, 20]);
      assert.equal(result.recall, null);
    });

    it('decodes with predictions: the second layer is there in time', () => {
      // The token is at shadow after 1, its first gate has decided at 5, told at 6, loaded at 26; computed 29, back 30. Second layer:
      // attention 40, there 41, loaded since 31; computed 44, back 45; LM head 46.
      const result = run({});
      assert.equal(result.tpotMs, 46);
      assert.deepEqual(result.recorder.stallMs, [15, 0]);
      assert.equal(result.recall, 1);
    });

    it('decodes with wrong predictions: what was loaded makes room for what is asked for', () => {
      // As without predictions, since the group of one drops the wrong expert and loads the right one.
      const result = run({}, new FlatTrace(2, 1, 1));
      assert.equal(result.tpotMs, 2 * 35 + 1);
      assert.equal(result.recall, 0);
    });

    it('departs optimistically: a token that shadow guessed has its first layer loaded while the one before ends', () => {
      const plain = simulateCluster(times, setUp({ workers: 2 }), new FlatTrace(2, 4), 5);
      const drafting = { optimistic: true, rows: 1 };
      const optimistic = simulateCluster(times, setUp({ workers: 2, drafting }), new FlatTrace(2, 4), 5);
      assert.ok(optimistic.tpotMs < plain.tpotMs, `${optimistic.tpotMs} and ${plain.tpotMs} ms`);
      assert.equal(optimistic.recorder.restarts, 0);
    });

    it('runs drafts of any quality to the last token', () => {
      for (const optimistic of [false, true]) {
        const drafting = { optimistic, rows: 3 };
        const right = simulateCluster(times, setUp({ workers: 2, drafting }), new FlatTrace(2, 12), 13);
        assert.equal(right.acceptance, 1);
        assert.ok(right.tokensPerPass > 1.5, `${right.tokensPerPass}`);
        const trace = new FlatTrace(2, 12, 0, (position) => position % 3 !== 0);
        const mixed = simulateCluster(times, setUp({ workers: 2, drafting }), trace, 13);
        assert.equal(mixed.answers[0]?.tokens, 13);
        assert.ok(mixed.recorder.restarts > 0);
        const wrong = simulateCluster(times, setUp({ workers: 2, drafting }), new FlatTrace(2, 12, 0, () => false), 13);
        assert.equal(wrong.tokensPerPass, 1);
      }
    });
  });

  it('has no stalls after the first layers just below equation 1, and has them just above', () => {
    const trace = new FlatTrace(24, 3);
    const timing = loadTiming(plainTimes(0), 4, 1);
    // Attention and the way back, an expert and the way there.
    assert.equal(timing.maxLoadMs, 4 * 11 + 3 * 4);
    const stallsAt = (loadMs: number): number => {
      const { recorder } = simulateCluster(plainTimes(loadMs, 0.01), setUp({ workers: 4 }), trace, 4);
      return recorder.stallMs.slice(4).reduce((sum, ms) => sum + ms, 0);
    };
    assert.equal(stallsAt(timing.maxLoadMs - 0.1), 0);
    // Equation 1 leaves out that the hidden state travels for 1 ms while the load still may run.
    assert.ok(stallsAt(timing.maxLoadMs + 1.1) > 0);
    assert.equal(loadTiming(plainTimes(56), 4, 1).ioBound, false);
    assert.equal(loadTiming(plainTimes(56.1), 4, 1).ioBound, true);
  });

  it('executes every activated expert once, with a load for each at least', () => {
    const setUps = fc.record({
      workers: fc.integer({ min: 1, max: 9 }),
      slots: fc.integer({ min: 1, max: 2 }),
      spread: fc.constantFrom('group' as const, 'all' as const),
      source: fc.constantFrom('sep' as const, 'random' as const, 'off' as const),
      tokenPeriod: fc.constantFrom(0, 1, 3),
      keyValuePeriod: fc.constantFrom(0, 1, 2),
      seed: fc.integer({ min: 0, max: 1000 }),
    });
    fc.assert(
      fc.property(setUps, ({ workers, slots, spread, source, tokenPeriod, keyValuePeriod, seed }) => {
        const trace = syntheticTrace({ recall: 0.8, seed });
        const changes = {
          ...{ workers, slots, prediction: { source } },
          align: { tokenPeriod, keyValuePeriod, streamKeyValues: true },
          placement: { groupSize: 'auto' as const, spread },
        };
        const { recorder } = simulateCluster(plainTimes(LOAD_MS), setUp(changes), trace, 7);
        // A prompt of one token and 6 iterations, 4 layers, 2 experts each.
        assert.equal(recorder.executions, 7 * 4 * 2);
        assert.ok(recorder.loads >= recorder.executions, `${recorder.loads} loads`);
      }),
      { numRuns: 40 },
    );
  });

  it('comes to the end of every answer, whatever is asked for', () => {
    const setUps = fc.record({
      rows: fc.constantFrom(1, 2, 4, 'auto' as const),
      optimistic: fc.boolean(),
      spread: fc.constantFrom('group' as const, 'all' as const),
      source: fc.constantFrom('sep' as const, 'random' as const, 'off' as const),
      tokenPeriod: fc.constantFrom(0, 1, 2, 4),
      keyValuePeriod: fc.constantFrom(0, 1, 3),
      acceptance: fc.constantFrom(0, 0.5, 1),
      shadowMs: fc.constantFrom(1, 20, 400),
    });
    fc.assert(
      fc.property(setUps, ({ rows, optimistic, spread, source, tokenPeriod, keyValuePeriod, acceptance, shadowMs }) => {
        const changes = {
          ...{ drafting: { rows, optimistic }, prediction: { source } },
          align: { tokenPeriod, keyValuePeriod, streamKeyValues: true },
          placement: { groupSize: 'auto' as const, spread },
        };
        const trace = syntheticTrace({ recall: 0.8, seed: 1, acceptance, iterations: 16 });
        const result = simulateCluster(plainTimes(LOAD_MS, shadowMs), setUp(changes), trace, 17);
        assert.equal(result.answers[0]?.tokens, 17);
        if (source !== 'sep' || tokenPeriod !== 1) assert.equal(result.acceptance, null);
      }),
      { numRuns: 120 },
    );
  });

  it('waits for drafts that do not come as long as the daemon does, and then for a while no more', () => {
    const clock = new VirtualClock();
    const options = { rows: 4, optimistic: false, promptTokens: 1, lastPosition: 99 };
    const drafting = new SimulatedDrafting(options, new DraftCostMeter(), () => 1, clock);
    const begunMs: number[] = [];
    for (const position of [1, 2]) {
      assert.equal(drafting.rowsAt(position), 4);
      drafting.waitThen(position, 4, () => begunMs.push(clock.nowMs));
      clock.run();
    }
    assert.deepEqual(begunMs, [DRAFT_SILENCE_LIMIT_MS, 2 * DRAFT_SILENCE_LIMIT_MS]);
    assert.equal(drafting.rowsAt(3), 1);
    drafting.arrive({ epoch: 1, sequence: 1, position: 4, tokenId: 0, branch: 0, passPosition: 3, runUs: 1000 });
    assert.equal(drafting.rowsAt(3), 4);
  });

  it('gives the same result every time', () => {
    const changes = { drafting: { optimistic: true, rows: 'auto' as const } };
    const once = () =>
      simulateCluster(plainTimes(LOAD_MS), setUp(changes), syntheticTrace({ recall: 0.9, seed: 3 }), 7);
    assert.equal(JSON.stringify(once()), JSON.stringify(once()));
  });

  it('is never slower with a faster link and perfect predictions', () => {
    const loads = fc.double({ min: 0.1, max: 80, noNaN: true });
    fc.assert(
      fc.property(
        loads,
        loads,
        fc.integer({ min: 2, max: 8 }),
        fc.integer({ min: 0, max: 99 }),
        (one, other, workers, seed) => {
          const trace = syntheticTrace({ recall: 1, seed });
          const tpotMs = (loadMs: number): number =>
            simulateCluster(plainTimes(loadMs), setUp({ workers }), trace, 5).tpotMs;
          const [fast, slow] = [Math.min(one, other), Math.max(one, other)];
          assert.ok(tpotMs(fast) <= tpotMs(slow) + 1e-9, `${tpotMs(fast)} and ${tpotMs(slow)} ms`);
        },
      ),
      { numRuns: 40 },
    );
  });

  it('runs a thousand workers', () => {
    const trace = syntheticTrace({ recall: 0.99, seed: 1 });
    const result = simulateCluster(plainTimes(LOAD_MS), setUp({ workers: 1000 }), trace, 7);
    assert.equal(result.answers[0]?.tokens, 7);
  });
});

function syntheticTrace(changes: { recall: number; seed: number; acceptance?: number; iterations?: number }) {
  return new SyntheticTrace({
    ...{ layers: 4, experts: 8, expertsPerToken: 2, prompts: 1, promptTokens: 1, iterations: 6, acceptance: 0.8 },
    ...changes,
  });
}
