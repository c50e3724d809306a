import assert from 'node:assert/strict';
import { ratioRows } from '../../bench/slices/decode-ratios.js';
import { measureDecode, type DecodeRow } from '../../bench/slices/measure-decode.js';
import { syntheticModels, TRACE_SETTING } from '../../bench/slices/scored-models.js';
import { sliceSizesOf, stepCosts } from '../../bench/slices/modelled-cost.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { loadModelProfile } from '../../engine/emulation/load-model-profile.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { SCORED_SHAPES, syntheticScores } from '../../simulator/slices/synthetic-scores.js';

const SMALL = { ...TRACE_SETTING, prompts: 1, promptTokens: 40, iterations: 12 };
const DEVICE = loadDeviceProfile(`${packageRoot()}/bench/profiles/ufs-lpddr4.yaml`).devices.main;
const { shape: QWEN } = loadModelProfile('qwen1.5-moe-a2.7b');

function nearly(actual: number | undefined, expected: number): void {
  assert.ok(actual !== undefined && Math.abs(actual / expected - 1) < 1e-9, `${actual}, not ${expected}`);
}

describe("the modelled cost of SliceMoE's device", () => {
  const sizes = sliceSizesOf(QWEN, { high: 8, low: 4 });
  const { energy } = DEVICE;
  assert.ok(energy);
  const costs = stepCosts(QWEN, sizes, DEVICE, energy);
  const NONE = { fetchedBytes: 0, waitedBytes: 0, low: 0, high: 0, mass: 1 };

  it('counts 4.75 bits a weight for an upper slice and 4 for a lower one', () => {
    const weights = 3 * 2048 * 1408;
    assert.deepEqual(sizes, { upperBytes: (weights * 4.75) / 8, lowerBytes: weights / 2 });
  });

  it('takes the energy and time of flash, memory and arithmetic', () => {
    const idle = costs([NONE], 0);
    const fetched = costs([{ ...NONE, fetchedBytes: 1.25e6 }], 0);
    // 10 Mbit: 1 ms of flash and 10/104 ms of memory; 103 + 1.5 pJ a bit.
    nearly(fetched.mj - idle.mj, 1e7 * 104.5e-9);
    nearly(fetched.serialMs - idle.serialMs, 1 + 10 / 104);
    nearly(fetched.overlappedMs - idle.overlappedMs, 1);
    const weights = 3 * 2048 * 1408;
    const low = costs([{ ...NONE, low: 1 }], 0);
    const high = costs([{ ...NONE, high: 1 }], 0);
    nearly(low.mj - idle.mj, (weights * 4.75 * 1.5 + 2 * weights * 0.31447) / 1e9);
    nearly(high.mj - low.mj, (weights * 4 * 1.5) / 1e9);
    nearly(high.serialMs - low.serialMs, (weights / 2 / 13e9) * 1000);
  });
});

describe('synthetic scores', () => {
  const setting = { ...SMALL, shape: SCORED_SHAPES['qwen1.5-moe-a2.7b'], iterations: 1 };
  const topOf = (prompt: number, position: number, given = setting): number[] =>
    (syntheticScores(given, prompt).positions[position] ?? []).map(({ scores }) => scores.indexOf(Math.max(...scores)));
  const same = (left: number[], right: number[]): number => left.filter((expert, at) => expert === right[at]).length;

  it('are the same for the same seed and sum to 1', () => {
    assert.deepEqual(syntheticScores(setting, 0), syntheticScores(setting, 0));
    assert.notDeepEqual(topOf(0, 0), topOf(0, 0, { ...setting, seed: 2 }));
    const [first] = syntheticScores(setting, 0).positions[0] ?? [];
    nearly(
      Array.from(first?.scores ?? []).reduce((sum, score) => sum + score, 0),
      1,
    );
  });

  it('share popularity between prompts, a topic within a prompt, and most between neighbours', () => {
    const only = (part: object): typeof setting => ({ ...setting, popularity: 0, topic: 0, token: 0, ...part });
    assert.equal(same(topOf(0, 0, only({ popularity: 1 })), topOf(1, 9, only({ popularity: 1 }))), 24);
    assert.equal(same(topOf(0, 0, only({ topic: 1 })), topOf(0, 9, only({ topic: 1 }))), 24);
    assert.ok(same(topOf(0, 0, only({ topic: 1 })), topOf(1, 0, only({ topic: 1 }))) < 6);
    const lasting = only({ token: 1, persistence: 1 });
    assert.equal(same(topOf(0, 0, lasting), topOf(0, 9, lasting)), 24);
    const fleeting = only({ token: 1, persistence: 0 });
    assert.ok(same(topOf(0, 0, fleeting), topOf(0, 1, fleeting)) < 6);
  });
});

describe('decode on synthetic traces', () => {
  const rows = measureDecode(syntheticModels(SMALL, [1.8, 3.6]));
  const found = (cacheGb: number, policy: string, given: Partial<DecodeRow> = {}): DecodeRow => {
    const one = rows.find(
      (row) =>
        row.model === 'deepseek-v2-lite' &&
        row.cache_gb === cacheGb &&
        row.policy === policy &&
        Object.entries(given).every(([key, value]) => row[key as keyof DecodeRow] === value),
    );
    assert.ok(one, `${policy} ${JSON.stringify(given)}`);
    return one;
  };

  it('fetches less with a larger cache, with slices, with a bias and with a warm start', () => {
    const small = found(1.8, 'high-bit LRU');
    assert.ok(found(3.6, 'high-bit LRU').bytes < small.bytes);
    assert.ok(found(1.8, 'DBSC', { table: 'energy', lambda: 0 }).bytes < small.bytes);
    const biased = found(1.8, 'Cache-Prior', { lambda: 0.4 });
    assert.ok(biased.bytes < small.bytes && biased.mj < small.mj && biased.ms < small.ms);
    assert.ok(biased.mass < small.mass && small.mass === 1);
    const start = (name: DecodeRow['start']): number =>
      found(3.6, 'DBSC', { table: 'dbsc', start: name, steps: 10 }).bytes;
    assert.ok(
      start('warm') < start('random') && start('random') < start('empty') && start('last-layer') < start('empty'),
    );
  });

  it('fetches less where lower slices of critical executions are spared, and then a warm start never costs more', () => {
    const bytes = (policy: string, start: DecodeRow['start'], cacheGb: number): number =>
      found(cacheGb, policy, { table: 'dbsc', start, steps: SMALL.iterations }).bytes;
    for (const cacheGb of [1.8, 3.6]) {
      const warm = bytes('DBSC spare-critical', 'warm', cacheGb);
      assert.ok(warm < bytes('DBSC', 'warm', cacheGb));
      assert.ok(warm < bytes('DBSC spare-critical', 'empty', cacheGb));
    }
    const ratio = ratioRows(rows).find(
      ({ model, compared, held, cache_gb: cacheGb }) =>
        model === 'deepseek-v2-lite' && compared.endsWith('spare-critical') && held.includes('10 ') && cacheGb === 3.6,
    );
    const of = (start: DecodeRow['start']): DecodeRow =>
      found(3.6, 'DBSC spare-critical', { table: 'dbsc', start, steps: 10 });
    nearly(ratio?.energy ?? undefined, of('empty').mj / of('warm').mj);
  });

  it('runs critical executions high if it waits for them, and seldom if it does not', () => {
    const high = (policy: string): number => found(2.4, policy, { target: null }).high;
    assert.ok(Math.abs(high('DBSC wait') - 0.3) < 0.05, String(high('DBSC wait')));
    assert.ok(high('DBSC background') < high('DBSC wait') && high('DBSC never') < high('DBSC wait'));
  });

  it('changes with the seed, and not from run to run', () => {
    const tiny = { ...SMALL, promptTokens: 4, iterations: 2 };
    const first = measureDecode(syntheticModels(tiny, [2.4]));
    assert.deepEqual(measureDecode(syntheticModels(tiny, [2.4])), first);
    assert.notDeepEqual(measureDecode(syntheticModels({ ...tiny, seed: 2 }, [2.4])), first);
  });

  it('is compared at equal routing mass and at equal steps', () => {
    const ratios = ratioRows(rows).filter(({ model, cache_gb: gb }) => model === 'deepseek-v2-lite' && gb === 1.8);
    const start = ratios.find(({ held }) => held.includes('first 10 steps'));
    const of = (name: DecodeRow['start']): DecodeRow => found(1.8, 'DBSC', { table: 'dbsc', start: name, steps: 10 });
    nearly(start?.energy ?? undefined, of('empty').mj / of('warm').mj);
    assert.deepEqual([start?.paper_energy, start?.paper_speed], [2.31, 1.96]);
    assert.ok(ratios.every(({ energy }) => energy === null || energy > 0));
  });
});
