import assert from 'node:assert/strict';
import { chooseWeightForm, resolveWeightForm } from '../../engine/loading/choose-weight-form.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { openModelSource } from '../../packs/open-model-source.js';
import type { Model } from '../../native/index.js';
import type { ExpectedTensor } from '../../packs/model-config/model-family.js';
import type { ModelSource, WeightFormat } from '../../shared/model/tensor-source.js';
import type { WeightDtype } from '../../shared/model/weight-dtype.js';
import { openTestDevice } from './native-test-model.js';
import { TINY_CONFIG, tinyTensors, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';

/** A model that records its loads and loads nothing. */
class RecordingModel implements Model {
  readonly loads: string[] = [];

  constructor(readonly shape: Model['shape']) {}

  async loadDense(role: string, layer: number, _source: unknown, format: WeightFormat): Promise<void> {
    this.loads.push(`${role} ${layer} ${format}`);
  }

  async loadResidentExpert(layer: number, expert: number, _source: unknown, format: WeightFormat): Promise<void> {
    this.loads.push(`expert ${layer}.${expert} ${format}`);
  }

  residentWeights(): never {
    throw new Error('not part of this test');
  }

  get sequenceBytes(): never {
    throw new Error('not part of this test');
  }

  createSequence(): never {
    throw new Error('not part of this test');
  }

  createPass(): never {
    throw new Error('not part of this test');
  }

  dispose(): void {
    this.loads.length = 0;
  }
}

async function withSource(
  config: Readonly<Record<string, unknown>>,
  dtypeOf: (expected: ExpectedTensor) => WeightDtype,
  use: (source: ModelSource, model: RecordingModel) => Promise<void>,
): Promise<void> {
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(directory, tinyTensors(config, dtypeOf), { config });
    const source = await openModelSource(directory);
    await use(source, new RecordingModel(source.shape));
  });
}

describe('the loader of weights', () => {
  it('loads all but the experts: projections as requested, norms as FP32, the rest as shipped', async () => {
    await withSource(
      TINY_CONFIG,
      () => 'BF16',
      async (source, model) => {
        const progress: [number, number][] = [];
        await loadDenseWeights(model, source, 'int8', (done, total) => progress.push([done, total]));
        const layer = (index: number): string[] => [
          `mixerNorm ${index} fp32`,
          `query ${index} int8`,
          `key ${index} int8`,
          `value ${index} int8`,
          `mixerOutput ${index} int8`,
          `feedForwardNorm ${index} fp32`,
          `router ${index} bf16`,
        ];
        assert.deepEqual(model.loads, [
          'embedding 0 bf16',
          ...layer(0),
          ...layer(1),
          'finalNorm 0 fp32',
          'lmHead 0 bf16',
        ]);
        assert.equal(progress.length, model.loads.length);
        assert.deepEqual(progress.at(-1)?.[0], progress.at(-1)?.[1]);
      },
    );
  });

  it('stores the LM head as fixed4 with the projections, or the embedding that replaces it', async () => {
    const fixed4 = async (config: Readonly<Record<string, unknown>>): Promise<string[]> => {
      let loads: string[] = [];
      await withSource(
        config,
        () => 'BF16',
        async (source, model) => {
          await loadDenseWeights(model, source, 'fixed4');
          loads = model.loads.filter((load) => load.endsWith('fixed4')).map((load) => load.split(' ')[0] ?? '');
        },
      );
      return [...new Set(loads)];
    };
    const projections = ['query', 'key', 'value', 'mixerOutput'];
    assert.deepEqual(await fixed4(TINY_CONFIG), [...projections, 'lmHead']);
    assert.deepEqual(await fixed4({ ...TINY_CONFIG, tie_word_embeddings: true }), ['embedding', ...projections]);
  });

  it('rounds nothing of a checkpoint of mixed types when its own format is requested', async () => {
    const dtypeOf = ({ name }: ExpectedTensor): WeightDtype => (/gate|q_proj|norm/.test(name) ? 'F32' : 'BF16');
    await withSource(TINY_CONFIG, dtypeOf, async (source, model) => {
      assert.equal(source.shippedFormat, 'bf16');
      await loadDenseWeights(model, source, 'shipped');
      for (const load of ['query 1 fp32', 'key 1 bf16', 'router 0 fp32', 'embedding 0 bf16'])
        assert.ok(model.loads.includes(load), load);
    });
  });

  it('loads no LM head with tied embeddings', async () => {
    await withSource(
      { ...TINY_CONFIG, tie_word_embeddings: true },
      () => 'F16',
      async (source, model) => {
        await loadDenseWeights(model, source, 'fp16');
        assert.ok(!model.loads.some((load) => load.startsWith('lmHead')));
      },
    );
  });

  it('loads every expert, and reports progress to the end', async () => {
    await withSource(
      TINY_CONFIG,
      () => 'BF16',
      async (source, model) => {
        const progress: [number, number][] = [];
        await loadResidentExperts(model, source, 'nf4', (done, total) => progress.push([done, total]));
        assert.deepEqual(
          model.loads,
          ['0.0', '0.1', '0.2', '1.0', '1.1', '1.2'].map((place) => `expert ${place} nf4`),
        );
        assert.deepEqual(progress.at(-1), [6 * 3 * 320 * 2, 6 * 3 * 320 * 2]);
      },
    );
  });

  it('chooses no form where the device lacks room to measure one, or is emulated', async () => {
    const device = openTestDevice({ budgetBytes: 1_000_000 });
    assert.deepEqual(await chooseWeightForm(device, 'bf16'), { format: 'bf16', fixed4Speedup: null });
    assert.equal(device.info().usedBytes, 0);
    assert.deepEqual(await resolveWeightForm(device, 'bf16', 'auto', null), { format: 'shipped', choice: null });
    assert.deepEqual(await resolveWeightForm(device, 'bf16', 'bf16', null), { format: 'shipped', choice: null });
    assert.deepEqual(await resolveWeightForm(device, 'bf16', 'fixed4', null), { format: 'fixed4', choice: null });
    assert.deepEqual(await resolveWeightForm(device, 'mxfp4', null, chooseWeightForm), {
      format: 'shipped',
      choice: null,
    });
    device.dispose();
  });

  it('refuses a norm with a non-finite value, by its file, name, role and layer', async () => {
    await withTemporaryDirectory(async (directory) => {
      const tensors = tinyTensors(TINY_CONFIG, () => 'F32').map((tensor) => ({ ...tensor }));
      for (const tensor of tensors) tensor.data = new Uint8Array(tensor.data.length);
      const norm = tensors.find(({ name }) => name === 'model.layers.1.input_layernorm.weight');
      assert.ok(norm !== undefined);
      norm.data.set(new Uint8Array(Float32Array.of(NaN).buffer), 4);
      await writeTinyCheckpoint(directory, tensors, { config: TINY_CONFIG });
      const source = await openModelSource(directory);
      const device = openTestDevice();
      const model = device.createModel(source.shape);
      await assert.rejects(loadDenseWeights(model, source, 'fp32'), {
        code: 'MODEL_CORRUPT',
        message:
          /model\.safetensors: tensor model\.layers\.1\.input_layernorm\.weight: mixerNorm of layer 1 holds a value that is no finite number/,
      });
      model.dispose();
      device.dispose();
    });
  });
});
