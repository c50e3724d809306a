import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ForcedPasses } from '../../bench/slices/forced-passes.js';
import { VARIANTS } from '../../bench/slices/measure-slices.js';
import { qualityRecords } from '../../bench/slices/quality-records.js';
import { loadVariant, readExperts } from '../../bench/slices/variant-experts.js';
import { createLocalRunner } from '../../engine/generation/local-runner.js';
import { loadDenseWeights } from '../../engine/loading/load-weights.js';
import { shadowForm, type ShadowForm } from '../../engine/loading/shadow-form.js';
import type { Device, Model, ResidentWeights } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { allExperts } from '../../shared/model/part-sizes.js';
import type { ModelSource, SlicedSplit } from '../../shared/model/tensor-source.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';
import { loadShadowModel } from '../../shadow-node/predictor/shadow-model.js';
import { bits, openTestDevice } from './native-test-model.js';
import { slice, withPack } from './sliced-pack.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const TOKENS = [5, 3, 9, 2, 7];

const slicedForm = (split: SlicedSplit, reading: 'both' | 'upperCentred' | 'upperAmat'): ShadowForm => ({
  format: 'bf16',
  sliced: { split, reading },
});

/** Gives the names of what is left in the directory for temporary files, which is one of the test's own. */
async function leftBy(use: () => Promise<void>): Promise<string[]> {
  const before = process.env['TMPDIR'];
  let left: string[] = [];
  await withTemporaryDirectory(async (directory) => {
    process.env['TMPDIR'] = directory;
    try {
      await use();
    } finally {
      if (before === undefined) delete process.env['TMPDIR'];
      else process.env['TMPDIR'] = before;
    }
    left = readdirSync(directory);
  });
  return left;
}

/** Bytes of the slices of all experts: the upper ones, or both. */
function sliceBytes(source: ModelSource, split: SlicedSplit, planes: number): number {
  return [...allExperts(source)]
    .flatMap(({ gate, up, down }) => [gate, up, down])
    .reduce((sum, { rows, columns }) => {
      const bytes = planeRowBytes(split, columns).slice(0, planes);
      return sum + rows * bytes.reduce((row, plane) => row + plane, 0);
    }, 0);
}

describe('a shadow with sliced experts', () => {
  let device: Device;

  before(() => {
    device = openTestDevice();
  });

  after(() => device.dispose());

  const withShadow = async <T>(
    directory: string,
    form: ShadowForm,
    use: (model: Model) => Promise<T> | T,
  ): Promise<T> => {
    const model = await loadShadowModel(device, await openModelSource(directory), form, 'projections');
    try {
      return await use(model);
    } finally {
      model.dispose();
    }
  };

  const logitsOf = async (model: Model, tokens: readonly number[] = TOKENS): Promise<Uint32Array> => {
    const runner = createLocalRunner(model, model.shape, 64);
    try {
      return bits(await runner.prefill(tokens));
    } finally {
      await runner.end();
    }
  };

  const logitsIn = async (directory: string, form: ShadowForm): Promise<Uint32Array> =>
    withShadow(directory, form, async (model) => logitsOf(model));

  it('keeps INT8 projections beside its slices, and of a low form the upper slices alone', async () => {
    const source = await openModelSource(DEMO);
    const kindsOf = (name: Parameters<typeof shadowForm>[0]): Promise<ResidentWeights['kinds']> =>
      withShadow(DEMO, shadowForm(name), (model) => model.residentWeights().kinds);
    const int8 = await kindsOf('int8');
    const bytesOf = (kinds: ResidentWeights['kinds'], format: string): number =>
      kinds.find((kind) => kind.format === format)?.bytes ?? assert.fail(format);
    for (const [name, split, planes] of [
      ['sliced(8,4)', 'sliced84', 2],
      ['sliced(8,4,low)', 'sliced84', 1],
      ['sliced(6,3)', 'sliced63', 2],
      ['sliced(6,3,low)', 'sliced63', 1],
      ['sliced(4,2)', 'sliced42', 2],
      ['sliced(4,2,low)', 'sliced42', 1],
    ] as const) {
      const kinds = await kindsOf(name);
      assert.deepEqual(new Set(kinds.map(({ format }) => format)), new Set(['bf16', 'int8', split]), name);
      // Rows of a matrix on the device may begin at multiples of some bytes.
      const expected = sliceBytes(source, split, planes);
      const found = bytesOf(kinds, split);
      assert.ok(found >= expected && found < expected * 1.02, `${name}: ${found} bytes for ${expected}`);
      assert.equal(bytesOf(kinds, 'bf16'), bytesOf(int8, 'bf16'), name);
    }
  });

  it('computes with the values that its codes stand for, by each reading', async () => {
    const source = await openModelSource(DEMO);
    const records = ((await qualityRecords(source, 300)) ?? []).slice(-1);
    const tokens = (records[0]?.tokenIds ?? []).slice(0, -1);
    const matrices = await readExperts(source);
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, 'shipped');
      const passes = new ForcedPasses(model, records);
      for (const [name, split, reading] of [
        ['asym8', 'sliced84', 'both'],
        ['amat(8,4)', 'sliced84', 'upperAmat'],
        ['centred(6,3)', 'sliced63', 'upperCentred'],
      ] as const) {
        const variant = VARIANTS.find((one) => one.name === name) ?? assert.fail(name);
        const high = await loadVariant(device, source, matrices, variant, passes.maxRows);
        let last = new Float32Array();
        try {
          await passes.run({ high, mixed: null }, { predicted: (_record, _index, logits) => (last = logits.slice()) });
        } finally {
          high.dispose();
        }
        const found = await withShadow(DEMO, slicedForm(split, reading), async (shadow) => logitsOf(shadow, tokens));
        assert.deepEqual(found, bits(last), name);
      }
    } finally {
      model.dispose();
    }
  });

  it('is the same from the slices of a pack, from its lossless experts, and from a checkpoint', async () => {
    await withPack(async (directory, checkpoint) => {
      for (const reading of ['both', 'upperCentred', 'upperAmat'] as const) {
        const form = slicedForm('sliced63', reading);
        const expected = await logitsIn(checkpoint, form);
        assert.deepEqual(await logitsIn(directory, form), expected, reading);
      }
      const [both, upper] = [slicedForm('sliced63', 'both'), slicedForm('sliced63', 'upperCentred')];
      const expected = [await logitsIn(directory, both), await logitsIn(directory, upper)];
      assert.notDeepEqual(expected[0], expected[1]);
      await slice(directory, 'sliced84');
      assert.deepEqual(await logitsIn(directory, both), expected[0], 'slices of another pair');
      for (const name of ['slices.json', ...(await sliceFiles(directory))]) await rm(join(directory, name));
      await slice(directory, 'sliced63');
      assert.deepEqual([await logitsIn(directory, both), await logitsIn(directory, upper)], expected);
    });
  });

  it('reads the slices of a pack, and of a low form no lower ones', async () => {
    await withPack(async (directory) => {
      await slice(directory, 'sliced84');
      const files = await sliceFiles(directory);
      const damage = async (sliceName: string): Promise<void> => {
        const path = join(directory, files.find((name) => name.includes(sliceName)) ?? assert.fail(sliceName));
        const bytes = await readFile(path);
        bytes[0] = (bytes[0] ?? 0) ^ 1;
        await writeFile(path, bytes);
      };
      await damage('lower');
      await logitsIn(directory, slicedForm('sliced84', 'upperCentred'));
      await assert.rejects(logitsIn(directory, slicedForm('sliced84', 'both')), { code: 'PACK_CORRUPT' });
      await damage('upper');
      await assert.rejects(logitsIn(directory, slicedForm('sliced84', 'upperCentred')), { code: 'PACK_CORRUPT' });
    });
  });

  it('opens slices and makes them outside the event loop', async () => {
    const source = await openModelSource(DEMO);
    let waits = 0;
    const loading = {
      outside: async <Result>(work: () => Promise<Result>): Promise<Result> => {
        waits += 1;
        return work();
      },
    };
    (await loadShadowModel(device, source, shadowForm('sliced(8,4)'), 'projections', loading)).dispose();
    const { expertLayers, experts } = source.shape;
    assert.equal(waits, expertLayers * experts + 2);
  });

  it('leaves no temporary file, not even where an expert cannot be read', async () => {
    const source = await openModelSource(DEMO);
    const broken: ModelSource = {
      ...source,
      expert: (layer, expert) => {
        if (layer === 1) throw new Error('no such expert');
        return source.expert(layer, expert);
      },
      dense: (role, layer) => source.dense(role, layer),
    };
    const [whole, form] = [await openModelSource(DEMO), shadowForm('sliced(8,4)')];
    const load = async (model: ModelSource): Promise<void> => {
      (await loadShadowModel(device, model, form, 'projections')).dispose();
    };
    assert.deepEqual(await leftBy(async () => load(whole)), []);
    const rejected = async (): Promise<void> => assert.rejects(load(broken), /no such expert/);
    assert.deepEqual(await leftBy(rejected), []);
  });
});

async function sliceFiles(directory: string): Promise<string[]> {
  const manifest = JSON.parse(await readFile(join(directory, 'slices.json'), 'utf8')) as { files: { name: string }[] };
  return manifest.files.map(({ name }) => name);
}
