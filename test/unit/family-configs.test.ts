import assert from 'node:assert/strict';
import { expectedTensors } from '../../packs/checkpoint/expected-tensors.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import type { ModelShape } from '../../shared/model/model-shape.js';

import {
  attentionOf,
  type Config,
  configOf,
  read,
  refuses,
  shapeOf,
  sparseLayers,
  withoutKeys,
} from './fixture-config.js';

/** The config as transformers 5 writes it. */
function newer(config: Config): Config {
  const { rope_theta, rope_scaling, partial_rotary_factor, torch_dtype, num_experts, ...rest } = config;
  if (rope_theta === undefined) return config;
  const { type, ...scaling } = (rope_scaling ?? {}) as Config;
  const rope_parameters = { rope_type: type ?? 'default', rope_theta, partial_rotary_factor, ...scaling };
  return { ...rest, dtype: torch_dtype, rope_parameters, num_local_experts: num_experts ?? rest.num_local_experts };
}

/** The config as published files have it. */
function older(config: Config): Config {
  const { rope_parameters, dtype, num_local_experts, ...rest } = config;
  if (rope_parameters === undefined || num_local_experts === undefined) return config;
  const { rope_type, rope_theta, partial_rotary_factor, ...scaling } = rope_parameters as Config;
  const rope_scaling = rope_type === 'default' ? null : { type: rope_type, ...scaling };
  return {
    ...rest,
    torch_dtype: dtype,
    rope_theta,
    rope_scaling,
    partial_rotary_factor,
    num_experts: num_local_experts,
  };
}

const NAMES = [
  'mixtral',
  'qwen2moe',
  'qwen3moe',
  'phimoe',
  'granitemoe',
  'glm45',
  'minimaxm2',
  'gptoss',
  'gptoss-mxfp4',
  'deepseekv2',
  'deepseekv2-yarn',
  'deepseekv3',
  'deepseekv3-fp8',
  'deepseekv32',
  'glmmoedsa',
  'granitemoehybrid',
  'nemotronh',
  'kimilinear',
  'qwen3next',
  'ernie45moe',
  'lfm2moe',
];

describe('config.json of each family', () => {
  for (const name of NAMES) {
    it(`is read alike in its older and its newer form: ${name}`, () => {
      const config = configOf(name);
      const { shape } = parseModelConfig(config, 'config.json').config;
      for (const form of [newer(config), older(config)]) {
        assert.deepEqual(parseModelConfig(form, 'config.json').config.shape, shape);
      }
    });
  }

  it('reads Qwen2-MoE: biases, shared experts, dense layers and windows as the keys say', () => {
    const shape = shapeOf('qwen2moe', {
      qkv_bias: false,
      mlp_only_layers: [1],
      shared_expert_intermediate_size: 40,
      layer_types: null,
      use_sliding_window: true,
      sliding_window: 16,
      max_window_layers: 2,
    });
    assert.equal(attentionOf(shape, 0).bias, false);
    assert.deepEqual(sparseLayers(shape), [0, 2, 3]);
    assert.deepEqual(shape.layers[0]?.always, { glu: { ...shape.expert, intermediateSize: 40 }, gated: true });
    assert.equal(shape.layers[1]?.always?.gated, false);
    assert.deepEqual(
      shape.layers.map((_, layer) => attentionOf(shape, layer).window),
      [16, 0, 0, 0],
    );
    const listed = { use_sliding_window: true, sliding_window: 16 };
    const layer_types = ['full_attention', 'sliding_attention', 'full_attention', 'full_attention'];
    assert.equal(attentionOf(shapeOf('qwen2moe', { ...listed, layer_types }), 1).window, 16);
    refuses('qwen2moe', { layer_types: ['full_attention'] }, 'MODEL_CORRUPT', /layer_types has 1 entries.*4/);
    refuses('qwen2moe', { layer_types: ['x', 'x', 'x', 'x'] }, 'MODEL_UNSUPPORTED', /layer_types is "x"/);
    refuses('qwen2moe', { num_hidden_layers: 1e9 }, 'MODEL_CORRUPT', /num_hidden_layers is 1000000000/);
  });

  it('reads Phi-3.5-MoE: LayerNorm, biases, window, and two experts one after the other', () => {
    const shape = shapeOf('phimoe', { attention_bias: false, lm_head_bias: false, sliding_window: null });
    assert.deepEqual([shape.norm, shape.lmHeadBias, shape.maxPositions], ['layer', false, 512]);
    const { bias, outputBias, window } = attentionOf(shape, 0);
    assert.deepEqual([bias, outputBias, window], [false, false, 0]);
    assert.equal(shapeOf('phimoe', { architectures: ['PhiMoEForCausalLM'] }).lmHeadBias, true);
    const long = parseModelConfig(configOf('phimoe'), 'config.json', { longContext: true }).config.shape;
    assert.deepEqual([long.maxPositions, long.ropes[0]?.scale], [1024, 1.5]);
    refuses('phimoe', { num_experts_per_tok: 3 }, 'MODEL_CORRUPT', /sparsemixer chooses 2 experts, not 3/);
  });

  it('reads Granite-MoE: its multipliers', () => {
    const { embeddingScale, residualScale, logitDivisor } = shapeOf('granitemoe', { residual_multiplier: 0.22 });
    assert.deepEqual([embeddingScale, residualScale, logitDivisor], [12, Math.fround(0.22), 0.5]);
    assert.equal(attentionOf(shapeOf('granitemoe', { attention_multiplier: 0.0078125 }), 0).scoreScale, 0.0078125);
    refuses('granitemoe', { logits_scaling: 0 }, 'MODEL_CORRUPT', /logits_scaling is 0/);
  });

  it('reads GLM-4.5: rotated share, norms and shared experts by the keys, more dense layers, groups', () => {
    const shape = shapeOf('glm45', {
      use_qk_norm: false,
      n_shared_experts: 2,
      first_k_dense_replace: 2,
      partial_rotary_factor: 1,
      n_group: 4,
      topk_group: 2,
    });
    assert.deepEqual(sparseLayers(shape), [2, 3]);
    assert.equal(shape.layers[3]?.always?.glu.intermediateSize, 80);
    assert.equal(attentionOf(shape, 0).queryKeyNorm, 'none');
    assert.equal(shape.ropes[0]?.frequencies.length, 12);
    assert.deepEqual([shape.layers[2]?.routed?.groups, shape.layers[2]?.routed?.groupsKept], [4, 2]);
    assert.equal(shapeOf('glm45', { n_shared_experts: 0 }).layers[1]?.always, null);
    refuses('glm45', { n_group: 5 }, 'MODEL_CORRUPT', /12 experts do not make 5 equal router groups/);
    refuses('glm45', { n_group: 6, topk_group: 1 }, 'MODEL_CORRUPT', /1 of 6 router groups do not hold 4/);
    refuses(
      'glm45',
      { hidden_act: 'gelu' },
      'MODEL_UNSUPPORTED',
      /hidden_act is "gelu", supported is "silu" or "swish"/,
    );
  });

  it('reads MiniMax-M2: rotated dimensions, and no linear attention', () => {
    assert.equal(shapeOf('minimaxm2', { rotary_dim: 20 }).ropes[0]?.frequencies.length, 10);
    refuses('minimaxm2', { attn_type_list: [1, 0, 1, 1] }, 'MODEL_UNSUPPORTED', /attn_type_list is 0/);
    refuses('minimaxm2', { shared_intermediate_size: 8 }, 'MODEL_UNSUPPORTED', /shared_intermediate_size is 8/);
    refuses('minimaxm2', { scoring_func: 'softmax' }, 'MODEL_UNSUPPORTED', /scoring_func is "softmax"/);
  });

  it('reads gpt-oss: windows by layer, the limit of its GLU, biases, its own rope by default', () => {
    const shape = shapeOf('gptoss', { layer_types: null, swiglu_limit: 5, attention_bias: false, sliding_window: 32 });
    assert.deepEqual(
      shape.layers.map((_, layer) => attentionOf(shape, layer).window),
      [32, 0, 32, 0],
    );
    assert.deepEqual([shape.expert.limit, shape.expert.bias, attentionOf(shape, 0).bias], [5, true, false]);
    const said = { rope_type: 'yarn', factor: 32, truncate: false, original_max_position_embeddings: 4096 };
    assert.deepEqual(
      shapeOf('gptoss', { rope_parameters: null }).ropes,
      shapeOf('gptoss', { rope_parameters: { ...said, rope_theta: 150_000 } }).ropes,
    );
    const quantization_config = { quant_method: 'awq' };
    refuses('gptoss', { quantization_config }, 'MODEL_UNSUPPORTED', /quant_method is "awq", supported is mxfp4/);
  });

  it('reads DeepSeek-V2: queries of low rank or not, groups, shared experts', () => {
    const shape = shapeOf('deepseekv2', { n_shared_experts: 3, first_k_dense_replace: 2, moe_layer_freq: 1 });
    assert.deepEqual(sparseLayers(shape), [2, 3]);
    assert.equal(shape.layers[2]?.always?.glu.intermediateSize, 144);
    const [first] = shapeOf('deepseekv2-yarn').layers;
    assert.ok(first?.mixer.kind === 'latent' && first.mixer.queryRank === 24);
    refuses('deepseekv2', { topk_method: 'noaux_tc' }, 'MODEL_UNSUPPORTED', /topk_method is "noaux_tc"/);
    refuses('deepseekv2', { attention_bias: true }, 'MODEL_UNSUPPORTED', /attention_bias is true/);
    refuses('deepseekv2', { kv_lora_rank: null }, 'MODEL_CORRUPT', /kv_lora_rank is missing/);
    refuses('deepseekv2-yarn', { n_group: null }, 'MODEL_CORRUPT', /n_group is missing/);
  });

  it('reads the indexers of DeepSeek-V3.2, which rotate halves, and of GLM-5, which rotate neighbours', () => {
    const indexers = (name: string, changes: Config): unknown[] =>
      shapeOf(name, changes).layers.map(({ mixer }) => {
        assert.ok(mixer.kind === 'latent' && mixer.rotary?.pairing === 'neighbours');
        const { heads, headDim, positions, rotary } = mixer.indexer ?? {};
        return mixer.sharesIndexer ?? [heads, headDim, positions, rotary?.pairing];
      });
    const own = [16, 16, 16, 'halves'];
    assert.deepEqual(indexers('deepseekv32', {}), [own, own, own]);
    const other = [2, 40, 2048, 'neighbours'];
    const changes = { index_n_heads: 2, index_head_dim: 40, index_topk: undefined, indexer_rope_interleave: true };
    assert.deepEqual(indexers('deepseekv32', changes), [other, other, other]);
    refuses('deepseekv32', { q_lora_rank: null }, 'MODEL_CORRUPT', /its indexer needs low-rank queries/);
    refuses('deepseekv32', { index_head_dim: 4 }, 'MODEL_CORRUPT', /a rope of 8 dimensions does not fit the 4/);
    refuses('deepseekv32', { mlp_bias: true }, 'MODEL_UNSUPPORTED', /mlp_bias is true/);
    const f = [8, 16, 12, 'neighbours'];
    const without = { index_topk_pattern: undefined };
    assert.deepEqual(indexers('glmmoedsa', {}), [f, true, f, true, f]);
    assert.deepEqual(indexers('glmmoedsa', without), [f, f, f, f, f]);
    assert.deepEqual(indexers('glmmoedsa', { ...without, index_topk_freq: 2 }), [f, f, true, f, true]);
    const every = { ...without, index_topk_freq: 3, index_skip_topk_offset: 1 };
    assert.deepEqual(indexers('glmmoedsa', every), [f, true, true, f, true]);
    const indexer_types = ['full', 'full', 'shared', 'shared', 'full'];
    assert.deepEqual(indexers('glmmoedsa', { indexer_types }), [f, f, true, true, f]);
    assert.deepEqual(indexers('glmmoedsa', { index_topk_pattern: indexer_types }), [f, f, true, true, f]);
  });

  it('refuses layers that share an indexer that is not there', () => {
    refuses(
      'glmmoedsa',
      { index_topk_pattern: 'SFFFF' },
      'MODEL_CORRUPT',
      /layer 0: it shares an indexer, and no layer/,
    );
    refuses('glmmoedsa', { index_topk_pattern: 'FSF' }, 'MODEL_CORRUPT', /index_topk_pattern has 3 entries/);
    refuses('glmmoedsa', { index_topk_pattern: 'FSXFF' }, 'MODEL_UNSUPPORTED', /index_topk_pattern is "X"/);
    refuses('glmmoedsa', { layer_types: Array(5).fill('full_attention') }, 'MODEL_UNSUPPORTED', /layer_types/);
  });

  it('reads DeepSeek-V3: pairs, scales, and FP8 in the one form in which it is shipped', () => {
    const [layer] = shapeOf('deepseekv3', { rope_interleave: false }).layers;
    assert.ok(layer?.mixer.kind === 'latent' && layer.mixer.rotary?.pairing === 'halves');
    const { routed } = shapeOf('deepseekv3', { norm_topk_prob: false, routed_scaling_factor: 1.5 }).layers[1] ?? {};
    assert.deepEqual([routed?.normalize, routed?.scale, routed?.groupScore], [false, 1.5, 'best-two']);
    const fp8 = { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [128, 128] };
    const forms = [
      { ...fp8, weight_block_size: [64, 64] },
      { ...fp8, fmt: 'e5m2' },
      { quant_method: 'gptq', bits: 3 },
    ];
    for (const quantization_config of forms) {
      refuses('deepseekv3-fp8', { quantization_config }, 'MODEL_UNSUPPORTED', /the checkpoint is quantized/);
    }
    assert.equal(read('deepseekv3-fp8', { quantization_config: { ...fp8, fmt: 'float8_e4m3fn' } }).quantization, 'fp8');
    assert.equal(read('mixtral', { quantization_config: fp8 }).quantization, 'fp8');
  });

  it('reads Qwen3-Next and 3.5: which layers have attention, and sizes of the delta net', () => {
    const shape = shapeOf('qwen3next', { full_attention_interval: 2, linear_value_head_dim: 20, mlp_only_layers: [3] });
    assert.equal(shape.layers.map(({ mixer }) => mixer.kind.charAt(0)).join(''), 'dadadada');
    assert.deepEqual(sparseLayers(shape), [0, 1, 2, 4, 5, 6, 7]);
    const text_config = { ...(configOf('qwen35moe').text_config as Config), layer_types: null };
    assert.deepEqual(shapeOf('qwen35moe', { text_config }), shapeOf('qwen35moe'));
    const flat = { ...text_config, architectures: ['Qwen3_5MoeForCausalLM'] };
    const own = parseModelConfig(flat, 'config.json').config;
    assert.deepEqual(own.shape, shapeOf('qwen35moe'));
    assert.equal(own.layout.dense({ role: 'mixerNorm', layer: 1 }).name, 'model.layers.1.input_layernorm.weight');
    refuses('qwen3next', { linear_num_value_heads: 3 }, 'MODEL_CORRUPT', /linear_num_value_heads 3 is not a multiple/);
    refuses('qwen3next', { attention_bias: true }, 'MODEL_UNSUPPORTED', /attention_bias is true/);
  });

  it('reads Gemma-4: global layers by their keys, or layer by layer as transformers 5 writes them', () => {
    const text = configOf('gemma4moe').text_config as Config;
    const { global_head_dim, num_global_key_value_heads, ...rest } = text;
    const ofGlobal = { head_dim: global_head_dim, num_key_value_heads: num_global_key_value_heads };
    const per_layer_config = { 2: ofGlobal, 5: ofGlobal };
    const shape = shapeOf('gemma4moe');
    assert.deepEqual(shapeOf('gemma4moe', { text_config: { ...rest, per_layer_config } }), shape);
    assert.deepEqual(
      shapeOf('gemma4moe', { text_config: { ...text, layer_types: null, num_hidden_layers: 3 } }).layers,
      [...shape.layers.slice(0, 2), shape.layers[5]],
    );
    const own = shapeOf('gemma4moe', { text_config: { ...text, attention_k_eq_v: false } });
    const { keyValueHeads, keysAreValues, headDim } = attentionOf(own, 2);
    assert.deepEqual([keyValueHeads, keysAreValues, headDim], [2, false, 32]);
    assert.equal(shapeOf('gemma4moe', { text_config: { ...text, final_logit_softcapping: null } }).logitCap, 0);
    const uneven = { ...rest, per_layer_config: { 2: ofGlobal, 5: { ...ofGlobal, head_dim: 16 } } };
    refuses('gemma4moe', { text_config: uneven }, 'MODEL_UNSUPPORTED', /per_layer_config is \[32,16\]/);
    for (const [key, value] of Object.entries({
      hidden_size_per_layer_input: 8,
      num_kv_shared_layers: 2,
      use_double_wide_mlp: true,
      use_bidirectional_attention: 'all',
      hidden_activation: 'relu',
    })) {
      const text_config = { ...text, [key]: value };
      refuses('gemma4moe', { text_config }, 'MODEL_UNSUPPORTED', new RegExp(`text_config\\.${key} is `));
    }
  });

  it('reads ERNIE-4.5-MoE: which layers have experts, and how many are shared', () => {
    const change = { moe_layer_start_index: 0, moe_layer_end_index: -1, moe_layer_interval: 2 };
    assert.deepEqual(sparseLayers(shapeOf('ernie45moe', change)), [1, 3]);
    assert.equal(shapeOf('ernie45moe', { moe_num_shared_experts: 0 }).layers[1]?.always, null);
    refuses('ernie45moe', { use_bias: true }, 'MODEL_UNSUPPORTED', /use_bias is true/);
    refuses('ernie45moe', { moe_layer_start_index: 9 }, 'MODEL_UNSUPPORTED', /no layer of the model has experts/);
  });

  it('reads LFM2-MoE: attention layers by list or by number, and no expert bias where it is off', () => {
    const { layers } = shapeOf('lfm2moe', { layer_types: null, full_attn_idxs: [2, 4], conv_L_cache: 4 });
    assert.equal(layers.map(({ mixer }) => mixer.kind.charAt(0)).join(''), 'ccacac');
    assert.deepEqual(layers[0]?.mixer, { kind: 'convolution', taps: 4 });
    refuses('lfm2moe', { conv_L_cache: 65 }, 'MODEL_UNSUPPORTED', /conv_L_cache is 65, supported is at most 64/);
    assert.equal(shapeOf('lfm2moe', { use_expert_bias: false }).layers[2]?.routed?.choiceBias, false);
    refuses('lfm2moe', { conv_bias: true }, 'MODEL_UNSUPPORTED', /conv_bias is true/);
  });

  it('reads Laguna: heads and gates, a cap of the router, and ropes of the layers that there are', () => {
    const { layers, ropes } = shapeOf('laguna', { gating: 'per-element', moe_router_logit_softcapping: 30 });
    const mixers = layers.map((_, layer) => attentionOf({ layers } as ModelShape, layer));
    assert.deepEqual(
      mixers.map(({ heads, window }) => [heads, window]),
      [4, 6, 6, 4, 6].map((heads) => [heads, heads === 6 ? 8 : 0]),
    );
    const [first] = mixers;
    assert.deepEqual([first?.outputGateFunction, first?.outputGateWidth], ['softplus', 'element']);
    assert.deepEqual([layers[1]?.routed?.logitCap, ropes.length], [30, 2]);
    assert.equal(attentionOf(shapeOf('laguna', { gating: true }), 0).outputGateWidth, 'head');
    const full = shapeOf('laguna', {
      layer_types: null,
      num_attention_heads_per_layer: null,
      rope_parameters: { full_attention: { rope_type: 'default', rope_theta: 10_000 } },
    });
    assert.deepEqual([full.ropes.length, attentionOf(full, 1).heads, attentionOf(full, 1).window], [1, 4, 0]);
    refuses('laguna', { gating: false }, 'MODEL_UNSUPPORTED', /gating is false/);
    refuses('laguna', { num_attention_heads_per_layer: [4, 6] }, 'MODEL_CORRUPT', /2 entries.*num_hidden_layers is 5/);
    refuses('laguna', { num_attention_heads_per_layer: [4, 6, 6, 0, 6] }, 'MODEL_CORRUPT', /per_layer has 0/);
    refuses('laguna', { num_attention_heads_per_layer: [4, 6, 6, 3, 6] }, 'MODEL_CORRUPT', /layer 3.*not a multiple/);
    refuses(
      'laguna',
      { moe_apply_router_weight_on_input: true },
      'MODEL_UNSUPPORTED',
      /router_weight_on_input is true/,
    );
  });

  it("reads Step-3.5's lists by layer, which may have entries of guessing layers", () => {
    const { layers } = shapeOf('step3p5', { swiglu_limits: [0, 0, 7, 0, 0.5] });
    assert.deepEqual(
      layers.map(({ expertLimit }) => expertLimit),
      [undefined, undefined, 7, undefined, 0.5],
    );
    assert.deepEqual(
      layers.map(({ always }) => [always?.glu.limit, always?.glu.limitOn]),
      [0, 0, 0, 0, 0.5].map((limit) => [limit, limit > 0 ? 'activation' : undefined]),
    );
    assert.deepEqual(sparseLayers(shapeOf('step3p5', { moe_layers_enum: [2, 4] })), [2, 4]);
    refuses('step3p5', { swiglu_limits: [0, 0] }, 'MODEL_CORRUPT', /swiglu_limits has 2 entries/);
    refuses('step3p5', { swiglu_limits: [0, 0, -1, 0, 0] }, 'MODEL_CORRUPT', /swiglu_limits has -1/);
    refuses('step3p5', { rope_theta: [1e4, 1e4, 1e4, 1e6, 1e4] }, 'MODEL_UNSUPPORTED', /rope_theta .* one value/);
    refuses('step3p5', { yarn_only_types: null }, 'MODEL_UNSUPPORTED', /yarn_only_types is null/);
    refuses('step3p5', { moe_layers_enum: 'all' }, 'MODEL_UNSUPPORTED', /moe_layers_enum is "all"/);
    refuses('step3p5', { use_head_wise_attn_gate: false }, 'MODEL_UNSUPPORTED', /attn_gate is false/);
    const setting = { num_attention_heads: 6, num_attention_groups: 3 };
    refuses('step3p5', { attention_other_setting: setting }, 'MODEL_UNSUPPORTED', /attention_groups is 3/);
  });

  it('reads Step-3.7 as transformers writes it', () => {
    const older = configOf('step3p7');
    const text = older.text_config as Config;
    const newerText: Config = {
      ...text,
      layer_types: (text.layer_types as string[]).slice(0, 5),
      mlp_layer_types: ['dense', 'sparse', 'sparse', 'sparse', 'sparse'],
      num_sliding_attention_heads: 6,
      per_layer_config: Object.fromEntries(['01', '02', '04'].map((layer) => [layer, { num_attention_heads: 6 }])),
      query_pre_attn_scalar: 16,
      rope_parameters: {
        full_attention: { ...(text.rope_scaling as Config), rope_theta: 5_000_000, partial_rotary_factor: 0.5 },
        sliding_attention: { rope_type: 'default', rope_theta: 10_000, partial_rotary_factor: 1 },
      },
    };
    const gone =
      'moe_layers_enum rope_theta partial_rotary_factors rope_scaling yarn_only_types attention_other_setting';
    assert.deepEqual(
      shapeOf('step3p7', { text_config: withoutKeys(newerText, ...gone.split(' ')) }),
      shapeOf('step3p7'),
    );
    assert.deepEqual(shapeOf('step3p7'), shapeOf('step3p5'));
  });

  it('reads Cohere2-MoE: norm, router, average, windows, and which layers are rotated', () => {
    const shape = shapeOf('cohere2moe-shared', { first_k_dense_replace: 2, prefix_dense_sliding_window_pattern: 2 });
    assert.equal(shape.norm, 'layer-without-bias');
    assert.equal(shape.normEpsilon, Math.fround(1e-5));
    assert.equal(shape.logitDivisor, Math.fround(1 / 0.7));
    assert.ok(shape.layers.every(({ parallel }) => parallel === true));
    const windows = shape.layers.map((_, layer) => attentionOf(shape, layer).window);
    assert.deepEqual(windows, [8, 0, 8, 8, 0]);
    const rotated = shape.layers.map((_, layer) => attentionOf(shape, layer).rotary?.pairing ?? null);
    assert.deepEqual(rotated, ['neighbours', null, 'neighbours', 'neighbours', null]);
    assert.deepEqual(
      shape.layers.map(({ feedForwardScale }) => feedForwardScale ?? 1),
      [1, 1, 0.5, 0.5, 0.5],
    );
    assert.equal(shape.layers[0]?.always?.glu.intermediateSize, 60);
    assert.equal(shape.layers[2]?.always?.glu.intermediateSize, 40);
    const dense = shapeOf('cohere2moe');
    assert.deepEqual([dense.norm, dense.normEpsilon], ['rms', Math.fround(1e-6)]);
    assert.deepEqual([attentionOf(dense, 0).window, attentionOf(dense, 0).rotary !== null], [0, true]);
    assert.deepEqual([attentionOf(dense, 4).window, attentionOf(dense, 4).rotary], [0, null]);
    assert.equal(dense.layers[1]?.routed?.normalize, false);
    const softmax = shapeOf('cohere2moe', { expert_selection_fn: 'softmax' });
    assert.deepEqual([softmax.layers[1]?.routed?.score, softmax.layers[1]?.routed?.normalize], ['softmax', true]);
    const summed = shapeOf('cohere2moe-shared', { shared_expert_combination_strategy: 'sum' });
    assert.ok(summed.layers.every(({ feedForwardScale }) => feedForwardScale === undefined));
    assert.equal(read('cohere2moe', { tie_word_embeddings: null }).tiedEmbeddings, true);
    assert.equal(read('cohere2moe', { tie_word_embeddings: false }).tiedEmbeddings, false);
    refuses('cohere2moe', { use_parallel_block: false }, 'MODEL_UNSUPPORTED', /use_parallel_block is false/);
    refuses('cohere2moe', { use_qk_norm: true }, 'MODEL_UNSUPPORTED', /use_qk_norm is true/);
    refuses('cohere2moe', { expert_selection_fn: 'tanh' }, 'MODEL_UNSUPPORTED', /expert_selection_fn is "tanh"/);
    refuses('cohere2moe', { logit_scale: 0 }, 'MODEL_CORRUPT', /logit_scale is 0/);
  });

  it('reads Mistral 4: queries scaled by position, groups, and the text of the form with images', () => {
    const text = configOf('mistral4').text_config as Config;
    const rope = text.rope_parameters as Config;
    const shape = shapeOf('mistral4');
    assert.deepEqual(shape.queryScale, { beta: Math.fround(0.1), length: 32 });
    assert.equal(shape.ropes[0]?.frequencies.length, 4);
    const changed = (change: Config): Config => ({ text_config: { ...text, rope_parameters: { ...rope, ...change } } });
    assert.equal(shapeOf('mistral4', changed({ llama_4_scaling_beta: 0 })).queryScale, undefined);
    const alone = parseModelConfig({ ...text, architectures: ['Mistral4ForCausalLM'] }, 'config.json').config;
    assert.deepEqual(alone.shape, shape);
    assert.ok([...expectedTensors(alone)].some(({ name }) => name === 'lm_head.weight'));
    const grouped = shapeOf('mistral4', { text_config: { ...text, n_group: 4, topk_group: 2 } }).layers[1]?.routed;
    assert.deepEqual([grouped?.groups, grouped?.groupsKept, grouped?.groupScore], [4, 2, 'best-two']);
    const unscaled = withoutKeys(rope, 'llama_4_scaling_beta');
    const without = { text_config: { ...text, rope_parameters: unscaled } };
    refuses('mistral4', without, 'MODEL_CORRUPT', /llama_4_scaling_beta/);
    refuses('mistral4', changed({ partial_rotary_factor: 0.5 }), 'MODEL_CORRUPT', /qk_rope_head_dim 8/);
    refuses('mistral4', changed({ max_position_embeddings: 9 }), 'MODEL_UNSUPPORTED', /max_position_embeddings is 9/);
    refuses('mistral4', { text_config: { ...text, model_type: 'mistral' } }, 'MODEL_UNSUPPORTED', /model_type/);
  });

  it('reads MiMo-V2-Flash: sizes, sinks and ropes of layers with and without a window, in both forms of its keys', () => {
    const shape = shapeOf('mimov2flash');
    const [full, windowed] = [attentionOf(shape, 0), attentionOf(shape, 1)];
    assert.deepEqual(
      [full.keyValueHeads, full.valueDim, full.sinks, full.window, full.rotary?.rope],
      [2, 16, false, 0, 0],
    );
    const own = [windowed.keyValueHeads, windowed.valueDim, windowed.sinks, windowed.window, windowed.rotary?.rope];
    assert.deepEqual(own, [4, 16, true, 8, 1]);
    assert.equal(full.valueScale, Math.fround(0.707));
    assert.deepEqual(
      shape.ropes.map(({ frequencies }) => frequencies.length),
      [4, 4],
    );
    assert.deepEqual(sparseLayers(shape), [1, 2, 3, 4]);
    const rope = { rope_type: 'default', partial_rotary_factor: 0.334 };
    const { rope_theta, swa_rope_theta, layernorm_epsilon, ...rest } = configOf('mimov2flash');
    const newForm = {
      ...withoutKeys(rest, 'hybrid_layer_pattern', 'moe_layer_freq', 'partial_rotary_factor'),
      rms_norm_eps: layernorm_epsilon,
      layer_types: [0, 1, 1, 0, 1].map((mark) => (mark === 1 ? 'sliding_attention' : 'full_attention')),
      mlp_layer_types: ['dense', 'sparse', 'sparse', 'sparse', 'sparse'],
      rope_parameters: {
        full_attention: { ...rope, rope_theta },
        sliding_attention: { ...rope, rope_theta: swa_rope_theta },
      },
    };
    assert.deepEqual(parseModelConfig(newForm, 'config.json').config.shape, shape);
    assert.equal(attentionOf(shapeOf('mimov2flash', { attention_value_scale: null }), 0).valueScale, 1);
    assert.equal(attentionOf(shapeOf('mimov2flash', { swa_head_dim: 30 }), 1).headDim, 30);
    refuses('mimov2flash', { sliding_window_size: 9 }, 'MODEL_UNSUPPORTED', /sliding_window_size is 9/);
    refuses('mimov2flash', { hybrid_layer_pattern: [0, 1] }, 'MODEL_CORRUPT', /hybrid_layer_pattern has 2 entries/);
    refuses('mimov2flash', { hybrid_layer_pattern: [0, 1, 1, 0, 2] }, 'MODEL_UNSUPPORTED', /hybrid_layer_pattern/);
    refuses('mimov2flash', { moe_layer_freq: [0, 1, 1, 1, 7] }, 'MODEL_UNSUPPORTED', /moe_layer_freq/);
    refuses('mimov2flash', { n_shared_experts: 1 }, 'MODEL_UNSUPPORTED', /n_shared_experts is 1/);
    refuses('mimov2flash', { hybrid_block_size: 4 }, 'MODEL_UNSUPPORTED', /hybrid_block_size is 4/);
  });

  it('refuses Switch Transformers, and gives the reason', () => {
    const architectures = ['SwitchTransformersForConditionalGeneration'];
    refuses('mixtral', { architectures }, 'MODEL_UNSUPPORTED', /capacity.*drop tokens/);
    refuses('mixtral', { architectures: null, model_type: 'switch_transformers' }, 'MODEL_UNSUPPORTED', /capacity/);
  });
});
