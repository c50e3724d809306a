import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { divergence, predictionOf, QualitySums } from '../../bench/slices/compare-logits.js';
import { ForcedPasses, type PassExperts } from '../../bench/slices/forced-passes.js';
import { measureQuality } from '../../bench/slices/measure-quality.js';
import { SLICED_FORMS, VARIANTS } from '../../bench/slices/measure-slices.js';
import { qualityRecords, type QualityRecord } from '../../bench/slices/quality-records.js';
import { loadVariant, LOSSLESS, readExperts } from '../../bench/slices/variant-experts.js';
import { createLocalRunner } from '../../engine/generation/local-runner.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { openDevice, type Device, type ExpertSlots, type Model } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { loadTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

const DEMO = join(packageRoot(), 'models', 'demo');

const logits = (count: number): fc.Arbitrary<Float32Array> =>
  fc
    .array(fc.float({ min: -30, max: 30, noNaN: true }), { minLength: count, maxLength: count })
    .map((values) => Float32Array.from(values));

describe('the divergence of two predictions', () => {
  it('is the sum of p log(p / q), which is 0 for the same and never below 0', () => {
    fc.assert(
      fc.property(logits(9), logits(9), (one, other) => {
        const shares = (values: Float32Array): number[] => {
          const sum = values.reduce((added, value) => added + Math.exp(value), 0);
          return Array.from(values, (value) => Math.exp(value) / sum);
        };
        const [p, q] = [shares(one), shares(other)];
        const expected = p.reduce((sum, share, at) => sum + share * Math.log(share / (q[at] ?? NaN)), 0);
        const found = divergence(predictionOf(one), predictionOf(other));
        assert.ok(Math.abs(found - expected) < 1e-9, `${found} for ${expected}`);
        assert.ok(found > -1e-12);
        assert.equal(divergence(predictionOf(one), predictionOf(one)), 0);
      }),
    );
  });

  it('counts with agreement, perplexities and right answers, each over its own tokens', () => {
    const sums = new QualitySums();
    const add = (record: number, isAnswer: boolean, variant: readonly number[]): void =>
      sums.add(record, 0, isAnswer, {
        lossless: predictionOf(Float32Array.of(Math.fround(Math.log(3)), 0)),
        variant: predictionOf(Float32Array.from(variant)),
      });
    add(0, false, [0, 1]);
    add(0, true, [Math.log(3), 0]);
    add(1, true, [0, Math.log(3)]);
    const { kl, agree, ppl_all, ppl_answer, right } = sums.figures(2);
    const near = (found: number, expected: number): void =>
      assert.ok(Math.abs(found - expected) < 1e-6, `${found} for ${expected}`);
    near(agree, 1 / 3);
    near(right, 1 / 2);
    near(ppl_answer, Math.sqrt((4 / 3) * 4));
    near(ppl_all, Math.cbrt((1 + Math.E) * (4 / 3) * 4));
    const klOfFirst = 0.75 * Math.log(0.75 * (1 + Math.E)) + 0.25 * Math.log((0.25 * (1 + Math.E)) / Math.E);
    near(kl, (klOfFirst + 0.5 * Math.log(3)) / 3);
  });
});

describe('records of quality.jsonl', () => {
  it('are a prompt by the chat template, an answer and an end, as tokens of one text', async () => {
    const source = await openModelSource(DEMO);
    const tokenizer = await loadTokenizer(DEMO);
    const records = (await qualityRecords(source, 300)) ?? [];
    assert.equal(records.length, 300);
    for (const { tokenIds, answerFrom } of records) {
      const pieces = tokenIds.map((id) => Buffer.from(tokenizer.tokenBytes(id)).toString('latin1'));
      const text = Buffer.from(pieces.join(''), 'latin1').toString('utf8');
      assert.match(text, /^<\|bos\|><\|user\|>\n[^<]+<\|end\|>\n<\|assistant\|>\n[^<]+<\|end\|>$/);
      assert.ok(pieces.slice(0, answerFrom).join('').endsWith('<|assistant|>\n'));
      assert.deepEqual(tokenizer.encodeRendered(text), tokenIds);
    }
  });
});

describe('passes with experts in slots', () => {
  let device: Device;
  let model: Model;
  let source: ModelSource;
  let records: QualityRecord[];
  let passes: ForcedPasses;
  const opened: ExpertSlots[] = [];

  before(async () => {
    source = await openModelSource(DEMO);
    records = ((await qualityRecords(source, 300)) ?? []).slice(-3);
    device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    model = device.createModel(source.shape);
    await loadDenseWeights(model, source, 'shipped');
    passes = new ForcedPasses(model, records);
  });

  after(() => {
    for (const slots of opened) slots.dispose();
    model.dispose();
    device.dispose();
  });

  const variantExperts = async (name: string): Promise<ExpertSlots> => {
    const variant = [LOSSLESS, ...VARIANTS].find((one) => one.name === name) ?? assert.fail(name);
    const slots = await loadVariant(device, source, await readExperts(source), variant, passes.maxRows);
    opened.push(slots);
    return slots;
  };

  const logitsOf = async (experts: PassExperts): Promise<Float32Array[]> => {
    const found: Float32Array[] = [];
    await passes.run(experts, { predicted: (_record, _index, ofToken) => found.push(ofToken) });
    return found;
  };

  it('leave no file behind where the process is asked to end while they are loaded', async () => {
    const [own, usual] = [await mkdtemp(join(tmpdir(), 'odmoe-interrupted-')), process.env.TMPDIR];
    try {
      const matrices = await readExperts(source);
      process.env.TMPDIR = own;
      const loading = loadVariant(device, source, matrices, LOSSLESS, passes.maxRows);
      process.emit('SIGTERM', 'SIGTERM');
      await assert.rejects(loading, { code: 'CANCELLED' });
      assert.deepEqual(await readdir(own), []);
    } finally {
      if (usual === undefined) delete process.env.TMPDIR;
      else process.env.TMPDIR = usual;
      await rm(own, { recursive: true, force: true });
    }
  });

  it('give the logits of the single-process engine to the bit where no expert is sliced', async () => {
    const found = await logitsOf({ high: await variantExperts('lossless'), mixed: null });
    await loadResidentExperts(model, source, 'shipped');
    const expected: Float32Array[] = [];
    for (const { tokenIds } of records) {
      const runner = createLocalRunner(model, source.shape, 64);
      try {
        const inputIds = tokenIds.slice(0, -1);
        expected.push(await runner.prefill(inputIds.slice(0, 1)));
        for (const id of inputIds.slice(1)) expected.push(await runner.decode(id));
      } finally {
        await runner.end();
      }
    }
    assert.deepEqual(found, expected);
  });

  it('read the high slots for exactly the executions that are chosen', async () => {
    const [high, low] = [await variantExperts('asym4'), await variantExperts('centred(4,2)')];
    const onlyHigh = await logitsOf({ high, mixed: null });
    const onlyLow = await logitsOf({ high: low, mixed: null });
    const chosen = async (isHigh: boolean): Promise<Float32Array[]> =>
      logitsOf({ high, mixed: { low, choose: (renormalized) => Array.from(renormalized, () => isHigh) } });
    assert.notDeepEqual(onlyHigh, onlyLow);
    assert.deepEqual(await chosen(true), onlyHigh);
    assert.deepEqual(await chosen(false), onlyLow);
  });
});

describe('odmoe bench slices', () => {
  it('finds that the executions of the largest weights gain most by their lower slices', async () => {
    const forms = SLICED_FORMS.filter(({ name }) => name === '(4,2)');
    const variants = VARIANTS.filter(({ name }) => name === 'asym4' || name === 'centred(4,2)');
    const rows = await measureQuality(DEMO, { records: 4, variants, forms, onProgress: () => undefined });
    const quality = rows.flatMap((row) => (row.table === 'quality' ? [row] : []));
    const thetas = rows.flatMap((row) => (row.table === 'theta' ? [row] : []));
    const klOf = (variant: string): number =>
      quality.find((row) => row.variant === variant)?.kl ?? assert.fail(variant);
    const { variant, kl, agree } = quality[0] ?? assert.fail();
    assert.deepEqual([variant, kl, agree], ['lossless', 0, 1]);
    assert.ok(klOf('asym4') < klOf('centred(4,2)'));
    for (const [index, wanted] of [0.1, 0.3, 0.5].entries()) {
      const { theta, critical, kl } = thetas[index] ?? assert.fail();
      assert.ok(Math.abs(critical - wanted) < 0.02, `${critical} for ${wanted}`);
      assert.equal(klOf(`dbsc(4,2) theta=${theta}`), kl);
      assert.ok(kl < klOf(`dbsc(4,2) theta=${theta} random`));
      assert.ok(kl < klOf(`dbsc(4,2) theta=${theta} inverse`));
      assert.ok(kl < klOf('centred(4,2)'));
    }
    assert.equal(new Set(quality.map((row) => row.variant)).size, quality.length);
  });
});
