import assert from 'node:assert/strict';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { ggufConfig } from '../../packs/gguf/gguf-config.js';
import { shortestDecimal } from '../../packs/gguf/gguf-config-parts.js';
import type { GgufModel, GgufTensor, GgufValue } from '../../packs/gguf/gguf-types.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { isOdmoe } from './gguf-refusals.js';

/** Keys that every architecture has, with small numbers. */
const KEYS: Readonly<Record<string, GgufValue>> = {
  block_count: 4,
  context_length: 512,
  embedding_length: 64,
  feed_forward_length: 96,
  'attention.head_count': 4,
  'attention.head_count_kv': 2,
  'attention.layer_norm_rms_epsilon': Math.fround(1e-5),
  'rope.freq_base': 10_000,
  expert_count: 8,
  expert_used_count: 2,
  expert_feed_forward_length: 32,
};

function modelOf(
  architecture: string,
  more: Readonly<Record<string, GgufValue>>,
  tensors: readonly string[] = [],
): GgufModel {
  const own = Object.entries({ ...KEYS, ...more }).map(([name, value]) => [`${architecture}.${name}`, value] as const);
  const tensor = (name: string): GgufTensor => ({
    name,
    type: 'F32',
    dimensions: [320, 64],
    path: 'x.gguf',
    offsetBytes: 0,
    sizeBytes: 0,
  });
  const names = ['token_embd.weight', ...tensors];
  return {
    path: 'x.gguf',
    parts: [],
    keys: new Map<string, GgufValue>([['general.architecture', architecture], ['general.name', 'x'], ...own]),
    tensors: new Map(names.map((name) => [name, tensor(name)])),
  };
}

function shapeOf(model: GgufModel): ModelShape {
  return parseModelConfig(ggufConfig(model).config, model.path).config.shape;
}

describe("the config.json of a GGUF's model:", () => {
  it('gives the decimal numbers back from which FP32 keys were written', () => {
    for (const value of [1e-5, 1e-6, 0.1, 2.5, 0.0707, 1e6, 0.015625, 5e-7]) {
      assert.equal(shortestDecimal(Math.fround(value)), value);
    }
  });

  it('ties the embeddings where there is no head', () => {
    assert.equal(ggufConfig(modelOf('qwen3moe', {})).config['tie_word_embeddings'], true);
    assert.equal(ggufConfig(modelOf('qwen3moe', {}, ['output.weight'])).config['tie_word_embeddings'], false);
  });

  it('refuses a key that nobody reads, and takes keys of other programs', () => {
    const strange = modelOf('qwen3moe', { 'attention.strange': 1 });
    assert.throws(() => ggufConfig(strange), isOdmoe('MODEL_UNSUPPORTED', /qwen3moe\.attention\.strange/));
    const labelled = modelOf('qwen3moe', {});
    ggufConfig({ ...labelled, keys: new Map([...labelled.keys, ['mradermacher.quantized_by', 'x']]) });
  });

  it('names the architectures that are read where one is not', () => {
    const model = { ...modelOf('qwen3moe', {}), keys: new Map([['general.architecture', 'rwkv7']]) };
    assert.throws(() => ggufConfig(model), isOdmoe('MODEL_UNSUPPORTED', /"rwkv7".*qwen3moe, llama, gpt-oss/));
  });

  it('refuses a dense model of the architecture llama', () => {
    assert.throws(
      () => ggufConfig(modelOf('llama', { expert_count: 0 })),
      isOdmoe('MODEL_UNSUPPORTED', /expert_count/),
    );
  });

  it('refuses a rope whose angles would be others', () => {
    const scaled = modelOf('qwen3moe', { 'rope.scaling.type': 'longrope', 'rope.scaling.factor': 4 });
    assert.throws(() => ggufConfig(scaled), isOdmoe('MODEL_UNSUPPORTED', /rope\.scaling\.type/));
    const attention = modelOf('qwen3moe', { 'rope.scaling.attn_factor': 2 });
    assert.throws(() => ggufConfig(attention), isOdmoe('MODEL_UNSUPPORTED', /attn_factor/));
  });

  it('reads Qwen2-MoE: weights that are not renormalized, a shared expert with a gate, biases', () => {
    const shape = shapeOf(modelOf('qwen2moe', { expert_shared_feed_forward_length: 48 }, ['blk.0.attn_q.bias']));
    const [layer] = shape.layers;
    assert.deepEqual(
      [layer?.routed?.normalize, layer?.always?.gated, layer?.always?.glu.intermediateSize],
      [false, true, 48],
    );
    assert.ok(layer?.mixer.kind === 'attention' && layer.mixer.bias);
  });

  it('reads ERNIE-4.5-MoE: dense layers before others, shared experts, a bias for the choice', () => {
    const keys = { leading_dense_block_count: 1, interleave_moe_layer_step: 1, expert_shared_count: 2 };
    const shape = shapeOf(modelOf('ernie4_5-moe', keys));
    assert.deepEqual(
      shape.layers.map(({ routed }) => routed !== null),
      [false, true, true, true],
    );
    assert.deepEqual([shape.layers[1]?.always?.glu.intermediateSize, shape.layers[1]?.routed?.choiceBias], [64, true]);
    assert.ok(shape.layers[0]?.mixer.kind === 'attention' && shape.layers[0].mixer.rotary?.pairing === 'neighbours');
  });

  it('reads Granite-MoE: its four factors, and no shared expert', () => {
    const factors = {
      'attention.scale': Math.fround(0.015625),
      embedding_scale: 12,
      residual_scale: Math.fround(0.22),
      logit_scale: 6,
    };
    const shape = shapeOf(modelOf('granitemoe', factors));
    assert.deepEqual([shape.embeddingScale, shape.residualScale, shape.logitDivisor], [12, Math.fround(0.22), 6]);
    const shared = modelOf('granitemoe', { ...factors, expert_shared_feed_forward_length: 16 });
    assert.throws(() => ggufConfig(shared), isOdmoe('MODEL_UNSUPPORTED', /expert_shared_feed_forward_length/));
  });

  it('reads LFM2-MoE: layers without key-value heads are convolutions', () => {
    const keys = { 'attention.head_count_kv': [0, 2, 0, 2], 'shortconv.l_cache': 3, leading_dense_block_count: 1 };
    const shape = shapeOf(modelOf('lfm2moe', { ...keys, expert_gating_func: 2 }, ['blk.1.exp_probs_b.bias']));
    assert.deepEqual(
      shape.layers.map(({ mixer }) => mixer.kind),
      ['convolution', 'attention', 'convolution', 'attention'],
    );
    assert.deepEqual(
      shape.layers.map(({ routed }) => routed?.choiceBias ?? null),
      [null, true, true, true],
    );
  });

  it("takes DeepSeek's router groups from the number of experts where an older file has no keys for them", () => {
    const latent = {
      'attention.kv_lora_rank': 32,
      'attention.head_count_kv': 4,
      'attention.key_length': 48,
      'attention.value_length': 32,
      'rope.dimension_count': 16,
    };
    const v3 = shapeOf(modelOf('deepseek2', { ...latent, block_count: 61, expert_count: 256 }));
    assert.deepEqual(
      [v3.layers[0]?.routed?.score, v3.layers[0]?.routed?.groups, v3.layers[0]?.routed?.groupsKept],
      ['sigmoid', 8, 4],
    );
    const lite = shapeOf(modelOf('deepseek2', { ...latent, expert_count: 64, expert_gating_func: 1 }));
    assert.deepEqual([lite.layers[0]?.routed?.score, lite.layers[0]?.routed?.groups], ['softmax', 1]);
  });

  it('counts layers that guess ahead apart from the others', () => {
    const keys = { nextn_predict_layers: 1, expert_gating_func: 2, expert_shared_count: 1 };
    const made = ggufConfig(modelOf('glm4moe', keys));
    assert.deepEqual([made.config['num_hidden_layers'], made.guessingLayers], [3, 1]);
  });
});
