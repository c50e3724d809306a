import assert from 'node:assert/strict';
import { join } from 'node:path';
import { decodeForced } from '../../bench/slices/forced-decode.js';
import { measureMisses } from '../../bench/slices/measure-misses.js';
import { measurePhases } from '../../bench/slices/measure-phases.js';
import { syntheticModels, TRACE_SETTING } from '../../bench/slices/scored-models.js';
import { VARIANTS } from '../../bench/slices/measure-slices.js';
import { predictionOf, type Prediction } from '../../bench/slices/compare-logits.js';
import { ForcedPasses } from '../../bench/slices/forced-passes.js';
import { qualityRecords } from '../../bench/slices/quality-records.js';
import { loadVariant, LOSSLESS, readExperts } from '../../bench/slices/variant-experts.js';
import { loadDenseWeights } from '../../engine/loading/load-weights.js';
import { openDevice } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { routersOf } from '../../shared/decisions/slices/output-weights.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const RECORDS = 3;
const PAIR = { high: 8, low: 4 } as const;

const variant = (name: string): (typeof VARIANTS)[number] =>
  VARIANTS.find((one) => one.name === name) ?? assert.fail(name);

describe('quality under a constraint on misses (figure 8)', function () {
  this.timeout(120_000);

  it('is that of whole passes where the cache holds all, and gets worse by the policy that swaps experts', async () => {
    const source = await openModelSource(DEMO);
    const records = (await qualityRecords(source, RECORDS)) ?? assert.fail('the demo model has records');
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    const model = device.createModel(source.shape);
    await loadDenseWeights(model, source, 'shipped');
    const matrices = await readExperts(source);
    const passes = new ForcedPasses(model, records);
    const load = (wanted: typeof LOSSLESS): ReturnType<typeof loadVariant> =>
      loadVariant(device, source, matrices, wanted, passes.maxRows);
    const whole = await load(LOSSLESS);
    const slots = { high: await load(variant('asym8')), low: await load(variant('centred(8,4)')) };
    try {
      const lossless: Prediction[][] = records.map(() => []);
      await passes.run(
        { high: whole, mixed: null },
        { predicted: (record, index, logits) => ((lossless[record] ?? [])[index] = predictionOf(logits)) },
      );
      const { expertLayers: layers, experts, expertsPerToken } = source.shape;
      const cache = { layers, experts, upperBytes: 1, lowerBytes: 1, capacityBytes: 2 * layers * experts };
      const rule = { cache, expertsPerToken, routing: { kind: 'top-k' }, lowerFetch: 'wait', start: 'warm' } as const;
      const sequence = { ...rule, theta: 0, missTarget: 0.999, seed: 1 };
      const all = { model, records, promptTokens: 32, slots: { high: whole, low: whole }, readsHigh: () => true };
      let predicted = 0;
      const reports = await decodeForced(
        { ...all, rules: { sequence, routers: routersOf(source.shape) } },
        (...given) => {
          const [record, index, logits] = given;
          assert.deepEqual(logits, lossless[record]?.[index]?.logits);
          predicted += 1;
        },
      );
      assert.equal(
        predicted,
        records.reduce((sum, { tokenIds }) => sum + tokenIds.length - 1, 0),
      );
      assert.ok(reports.every(({ lever, isMet }) => lever === 'none' && isMet));

      const rows = await measureMisses({ model, records, lossless, pair: PAIR, slots, theta: 0.6 }, () => undefined);
      assert.equal(rows.length, 16);
      const of = (policy: string, target: number): (typeof rows)[number] =>
        rows.find((row) => row.policy === policy && row.target === target) ?? assert.fail(policy);
      for (const row of rows) assert.ok(row.kl > 0 && row.agree > 0 && row.misses > 0, JSON.stringify(row));
      for (const target of [0.01, 0.025]) {
        assert.ok(of('AMAT', target).kl < of('high-bit', target).kl, 'low bits harm less than other experts');
        assert.ok(of('AMAT', target).misses < of('high-bit', target).misses);
      }
    } finally {
      for (const used of [whole, slots.high, slots.low, model, device]) used.dispose();
    }
  });
});

describe('the phases of expert selection (figure 3)', () => {
  it('show a tenth of the experts with most choices, and less of them in a short decode that the prompt foretells', () => {
    const rows = measurePhases(syntheticModels({ ...TRACE_SETTING, prompts: 1, promptTokens: 40, iterations: 30 }));
    assert.deepEqual(
      rows.map(({ model, phase, steps }) => [model, phase, steps]),
      ['qwen1.5-moe-a2.7b', 'deepseek-v2-lite'].flatMap((model) => [
        [model, 'prefill', 40],
        [model, 'decode', 10],
        [model, 'decode', 25],
        [model, 'decode', 30],
      ]),
    );
    for (const { phase, used, top_tenth: top, top_tenth_of_prompt: ofPrompt } of rows) {
      assert.ok(top > 0.1 && top < 1 && used > 0 && used <= 1);
      if (phase === 'prefill') assert.equal(ofPrompt, top);
      else assert.ok(ofPrompt > 0.1 && ofPrompt < top, 'the prompt foretells a part of what decode chooses');
    }
    const popular = measurePhases(
      syntheticModels({ ...TRACE_SETTING, prompts: 1, promptTokens: 40, iterations: 30, popularity: 3 }),
    );
    for (const [index, row] of popular.entries()) assert.ok(row.top_tenth > (rows[index]?.top_tenth ?? 1));
  });
});
