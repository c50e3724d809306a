import assert from 'node:assert/strict';
import { shippedStorage, storageForm } from '../../engine/emulation/device-profile.js';
import { FLOAT_BYTES, layersWork, vocabularyWeights } from '../../engine/emulation/layer-arithmetic.js';
import { loadModelProfile, modelProfileNames } from '../../engine/emulation/load-model-profile.js';
import { expertMatrixValues, cacheRowFloats } from '../../shared/model/model-shape.js';

const MODELS = Object.fromEntries(modelProfileNames().map((name) => [name, loadModelProfile(name)]));

function model(name: string) {
  const found = MODELS[name];
  assert.ok(found, name);
  return found;
}

function parameters({ shape, tiedEmbeddings }: ReturnType<typeof model>): number {
  const dense = layersWork(shape).reduce((sum, { weights }) => sum + weights, 0);
  const experts = shape.expertLayers * shape.experts * expertMatrixValues(shape);
  return dense + experts + (tiedEmbeddings ? 1 : 2) * vocabularyWeights(shape);
}

const near = (actual: number, expected: number, share: number, what: string): void => {
  assert.ok(Math.abs(actual / expected - 1) <= share, `${what}: ${actual}, not ${expected}`);
};

describe('model profiles', () => {
  it('have the number of parameters that their makers publish, in billions', () => {
    const published: Record<string, number> = {
      'mixtral-8x7b': 46.7,
      'mixtral-8x22b': 141,
      'qwen1.5-moe-a2.7b': 14.3,
      'qwen3-30b-a3b': 30.5,
      'qwen3-next-80b-a3b': 80,
      'qwen3.5-35b-a3b': 35,
      'gpt-oss-20b': 20.9,
      'gpt-oss-120b': 116.8,
      'glm-4.5-air': 106,
      'glm-4.7-flash': 30,
      'deepseek-v2-lite': 15.7,
      'deepseek-v3': 671,
      'kimi-k2-thinking': 1026,
      'phi-3.5-moe': 41.9,
      'granite-3.1-3b-a800m': 3.3,
      'minimax-m2': 229,
      'gemma-4-26b-a4b': 25.2,
      'ernie-4.5-21b-a3b': 21.8,
      'lfm2-8b-a1b': 8.3,
      'olmoe-1b-7b': 6.92,
      'hunyuan-a13b': 80.4,
    };
    assert.deepEqual(Object.keys(published).sort(), modelProfileNames());
    for (const [name, billions] of Object.entries(published)) {
      near(parameters(model(name)) / 1e9, billions, 0.02, name);
    }
  });

  it('have experts, loads and messages of the known sizes', () => {
    // Megabytes of an expert, gigabytes that a token loads, megabytes of its messages with one worker an expert.
    const known: Record<string, [number, number, number]> = {
      'mixtral-8x7b': [352, 22.6, 2.1],
      'qwen3-30b-a3b': [9.4, 3.6, 6.3],
      'qwen3.5-35b-a3b': [6.3, 2.0, 5.2],
      'gpt-oss-20b': [13.2, 1.3, 2.2],
      'glm-4.5-air': [34.6, 12.5, 11.8],
      'deepseek-v3': [44, 20.4, 26.6],
    };
    for (const [name, [expertMB, loadsGB, wireMB]] of Object.entries(known)) {
      const { shape } = model(name);
      const plain = expertMatrixValues(shape) * storageForm(shippedStorage(model(name))).storedBytes;
      // FP8 beside its scales.
      const expertBytes = name === 'deepseek-v3' ? expertMatrixValues(shape) : plain;
      const used = shape.expertLayers * shape.expertsPerToken;
      near(expertBytes / 1e6, expertMB, 0.01, `${name}, MB of an expert`);
      near((used * expertBytes) / 1e9, loadsGB, 0.03, `${name}, GB loaded a token`);
      near((2 * used * shape.hiddenSize * FLOAT_BYTES) / 1e6, wireMB, 0.02, `${name}, MB of messages a token`);
    }
  });

  it('have the layers of their families', () => {
    const kinds = (name: string): string[] => [...new Set(model(name).shape.layers.map(({ mixer }) => mixer.kind))];
    assert.deepEqual(kinds('deepseek-v2-lite'), ['latent']);
    assert.deepEqual(kinds('qwen3-next-80b-a3b'), ['delta', 'attention']);
    assert.deepEqual(kinds('lfm2-8b-a1b'), ['convolution', 'attention']);
    assert.equal(model('glm-4.5-air').shape.expertLayers, 45);
    assert.equal(model('deepseek-v3').shape.expertLayers, 58);
    const windows = new Set(
      model('gpt-oss-20b').shape.layers.map(({ mixer }) => (mixer.kind === 'attention' ? mixer.window : -1)),
    );
    assert.deepEqual([...windows], [128, 0]);
    // Bytes of one position in one layer: the latent row replaces the rows of all heads.
    const [{ mixer } = { mixer: null }] = model('deepseek-v2-lite').shape.layers;
    assert.ok(mixer);
    assert.equal(cacheRowFloats(mixer, 2048) * FLOAT_BYTES, 2304);
  });
});
