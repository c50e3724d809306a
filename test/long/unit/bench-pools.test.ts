import assert from 'node:assert/strict';
import { profileFile } from '../../../cli/client/simulation-flags.js';
import { askCached } from '../../../bench/pools/ask-cached.js';
import { poolsMachine, COMPARED_POLICIES, divideMemory } from '../../../bench/pools/cached-worker.js';
import { measureAnswers, promptsNeeded } from '../../../bench/pools/measure-answers.js';
import { cellOf, type PoolsCell, statementsOf, TOLERANCE } from '../../../bench/pools/pools-figures.js';
import { poolsCsv, poolsPlot, poolsText } from '../../../bench/pools/pools-report.js';
import { PopularTrace } from '../../../bench/pools/popular-trace.js';
import { measureSchedules } from '../../../bench/schedule/measure-schedules.js';
import type { DeviceProfile } from '../../../engine/emulation/device-profile.js';
import { loadDeviceProfile } from '../../../engine/emulation/load-device-profile.js';
import { plainShape } from '../../../engine/emulation/plain-shape.js';
import { NO_CAPACITIES } from '../../../shared/decisions/caching/pool-capacities.js';

const TRACE = {
  layers: 2,
  experts: 8,
  expertsPerToken: 3,
  prompts: 4,
  promptTokens: 500,
  iterations: 1500,
  skew: 1,
  seed: 5,
};

function activated(trace: PopularTrace, position: number, layer: number, prompt = 0): readonly number[] {
  return trace.activated({ prompt, position, layer, onPath: true });
}

function shares(trace: PopularTrace, layer: number): number[] {
  const counts = new Array<number>(TRACE.experts).fill(0);
  for (let position = 0; position < 2000; position += 1) {
    for (const expert of activated(trace, position, layer)) counts[expert] = (counts[expert] ?? 0) + 1 / 2000;
  }
  return counts;
}

describe('the traces with popular experts', () => {
  it('give each token different experts, the same for the same seed', () => {
    const trace = new PopularTrace(TRACE);
    for (let position = 0; position < 50; position += 1) {
      const experts = activated(trace, position, 1);
      assert.equal(new Set(experts).size, TRACE.expertsPerToken);
      assert.deepEqual(activated(new PopularTrace(TRACE), position, 1), experts);
    }
    const twenty = (trace: PopularTrace, prompt: number): (readonly number[])[] =>
      Array.from({ length: 20 }, (_, position) => activated(trace, position, 0, prompt));
    assert.notDeepEqual(twenty(trace, 0), twenty(new PopularTrace({ ...TRACE, seed: 6 }), 0));
    assert.notDeepEqual(twenty(trace, 0), twenty(trace, 1));
  });

  it('have the requested skew, with popular experts of each layer', () => {
    const flat = shares(new PopularTrace({ ...TRACE, skew: 0 }), 0);
    for (const share of flat) assert.ok(Math.abs(share - 3 / 8) < 0.06, String(share));
    const skewed = shares(new PopularTrace({ ...TRACE, skew: 1.5 }), 0);
    assert.ok(Math.max(...skewed) > 0.85);
    assert.ok(Math.min(...skewed) < 0.2);
    const other = shares(new PopularTrace({ ...TRACE, skew: 1.5 }), 1);
    assert.notDeepEqual(
      skewed.map((share) => share > 0.5),
      other.map((share) => share > 0.5),
    );
  });
});

/** A small model with experts of the size of Qwen1.5-MoE's on the profiled board. */
function smallProfile(linkBytesPerS?: number): DeviceProfile {
  const profile = loadDeviceProfile(profileFile('agx-orin'));
  const shape = plainShape({
    layers: 2,
    hiddenSize: 2048,
    intermediateSize: 1408,
    heads: 16,
    keyValueHeads: 16,
    headDim: 128,
    vocabSize: 1000,
    experts: 12,
    expertsPerToken: 3,
  });
  const { worker } = profile.devices;
  const devices = {
    ...profile.devices,
    worker: { ...worker, linkBytesPerS: linkBytesPerS ?? worker.linkBytesPerS },
  };
  return { ...profile, devices, model: { ...profile.model, name: 'small', shape } };
}

const SETTING = {
  policies: COMPARED_POLICIES,
  cachedShares: [0.25, 0.5],
  batches: [1, 2],
  batchShare: 0.5,
  tokens: 12,
  answers: 2,
  recordedPrompts: 4,
  warmPrompts: 1,
};
const SMALL_TRACE = new PopularTrace({
  layers: 2,
  experts: 12,
  expertsPerToken: 3,
  prompts: promptsNeeded(SETTING),
  promptTokens: 4,
  iterations: 40,
  skew: 1,
  seed: 3,
});

describe('bench pools on the virtual clock', () => {
  let cells: PoolsCell[] = [];
  const progress: [number, number][] = [];

  before(async function () {
    this.timeout(180_000);
    const machine = poolsMachine(smallProfile(), 'huffman');
    cells = await measureAnswers([{ machine, trace: SMALL_TRACE, activations: 'drawn' }], SETTING, (...step) =>
      progress.push(step),
    );
  });

  function cell(policy: PoolsCell['policy'], cachedShare: number, users = 1): PoolsCell {
    const found = cells.find(
      (each) => each.policy === policy && each.cachedShare === cachedShare && each.users === users,
    );
    assert.ok(found !== undefined, policy);
    return found;
  }

  it('measures every policy at every place', () => {
    assert.equal(cells.length, 3 * COMPARED_POLICIES.length);
    assert.deepEqual(progress.at(-1), [cells.length, cells.length]);
    for (const { ttftMs, tpotMs, tokensPerS, latencies } of cells) {
      assert.ok(ttftMs > 0 && tpotMs > 0 && tokensPerS > 0);
      assert.deepEqual(
        latencies.map(({ tokens }) => tokens),
        [8, 12],
      );
      // A whole answer is its first token and those behind it.
      assert.ok(Math.abs((latencies.at(-1)?.ms ?? 0) - (ttftMs + 11 * tpotMs)) < 1e-6);
    }
  });

  it('is never slower with more memory, nor slower with a plan than without', () => {
    for (const policy of COMPARED_POLICIES) {
      const [less, more] = [cell(policy, 0.25), cell(policy, 0.5)];
      assert.ok(more.tokensPerS >= (1 - TOLERANCE) * less.tokensPerS, policy);
      assert.ok(policy === 'none' || more.memoryBytes > less.memoryBytes);
    }
    for (const other of ['ranked', 'lru', 'fifo', 'marking', 'none'] as const) {
      for (const [share, users] of [
        [0.25, 1],
        [0.5, 1],
        [0.5, 2],
      ] as const) {
        const ratio = cell('planned', share, users).tokensPerS / cell(other, share, users).tokensPerS;
        assert.ok(ratio > 1 - TOLERANCE, `${other} at ${share}, ${users} at a time: ${ratio}`);
      }
    }
    assert.ok(cell('planned', 0.5).tokensPerS > 1.5 * cell('none', 0.5).tokensPerS);
  });

  it('caches what each policy prescribes', () => {
    const none = cell('none', 0.5);
    assert.deepEqual([none.wholeShare, none.partShare], [0, 0]);
    for (const policy of ['ranked', 'lru', 'fifo', 'marking', 'popularity'] as const) {
      const { capacities, wholeShare, partShare } = cell(policy, 0.5);
      assert.deepEqual(capacities, { ...NO_CAPACITIES, full: 12 });
      assert.ok(wholeShare > 0.3 && partShare === 0, policy);
    }
    const { capacities, partShare } = cell('planned', 0.25);
    assert.ok(capacities.compressed + capacities.signMantissa + capacities.exponent > 0);
    assert.ok(partShare > 0.1);
  });

  it('gives the same result again, and depends on the storage', async function () {
    this.timeout(60_000);
    const prompts = { recorded: [0, 1, 2, 3], warm: [4], asked: [5, 6], atOnce: 1, tokens: 12 };
    const measure = async (linkBytesPerS?: number): Promise<PoolsCell> => {
      const machine = poolsMachine(smallProfile(linkBytesPerS), 'huffman');
      const memory = divideMemory(machine, 0.5);
      const answers = await askCached(machine, 'lru', memory, SMALL_TRACE, prompts);
      const { model, activations, policy, cachedShare, users } = cell('lru', 0.5);
      const { memoryBytes } = memory;
      return cellOf({ model, activations, policy, cachedShare, users, memoryBytes }, answers);
    };
    assert.deepEqual(await measure(), cell('lru', 0.5));
    assert.ok((await measure(1e9)).tokensPerS < 0.6 * cell('lru', 0.5).tokensPerS);
  });

  it('prints its result in tables, lines and plots', () => {
    const text = poolsText(cells);
    for (const title of [/Tokens\/s of whole answers/, /TTFT, ms/, /several answers at a time/, /Beside ZipMoE/]) {
      assert.match(text, title);
    }
    assert.equal(poolsCsv(cells).trimEnd().split('\n').length, cells.length + 1);
    assert.match(poolsPlot(cells), /small: tokens\/s by GB/);
  });

  it('divides memory among the model without experts, slots and the cache', () => {
    const machine = poolsMachine(smallProfile(), 'huffman');
    const { memoryBytes, denseBytes, slotsBytes, cacheBytes } = divideMemory(machine, 0.5);
    const expertBytes = 3 * 2048 * 1408 * 2;
    assert.deepEqual([slotsBytes, cacheBytes], [3 * expertBytes, 12 * expertBytes]);
    assert.equal(memoryBytes, denseBytes + slotsBytes + cacheBytes);
    // 1 GB is reserved.
    assert.ok(denseBytes > 1e9 && denseBytes < 1.2e9);
  });
});

describe('the statements beside ZipMoE', () => {
  const place = { model: 'm', activations: 'drawn', cachedShare: 0.5, memoryBytes: 10, users: 1 } as const;
  const answers = (ms: number) => ({ answers: [{ askedMs: 0, tokenMs: [ms, 2 * ms] }], cache: null, loads: 0 });
  const at = (policy: PoolsCell['policy'], ms: number, memoryBytes = 10): PoolsCell =>
    cellOf({ ...place, policy, memoryBytes, cachedShare: memoryBytes / 20 }, answers(ms));
  const holds = (cells: PoolsCell[], what: RegExp): boolean | null | undefined =>
    statementsOf(cells).find((statement) => what.test(statement.what))?.holds;

  it('are true or false by the cells', () => {
    const slower = [at('planned', 12), at('ranked', 10), at('lru', 10), at('fifo', 10), at('marking', 11)];
    assert.equal(holds(slower, /best of LRU/), false);
    const better = [at('planned', 8), ...slower.slice(1), at('none', 16)];
    assert.equal(holds(better, /best of LRU/), true);
    assert.equal(holds(better, /TPOT saved/), true);
    assert.equal(statementsOf(better).find(({ what }) => /TPOT/.test(what))?.ours, '50 to 50 %');
  });

  it('report memory that makes answers slower', () => {
    assert.equal(holds([at('lru', 10), at('lru', 10.1, 12)], /more memory/), true);
    assert.equal(holds([at('lru', 10), at('lru', 11, 12)], /more memory/), false);
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
