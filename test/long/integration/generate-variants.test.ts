import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openCheckpoint } from '../../../packs/checkpoint/checkpoint.js';
import { expectedBiases, expectedTensors } from '../../../packs/checkpoint/expected-tensors.js';
import { parseModelConfig } from '../../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import type { ExpectedTensor } from '../../../packs/model-config/model-family.js';
import { PlainForward } from '../../unit/plain-forward.js';
import {
  type TinyTensor,
  tokenTable,
  withTemporaryDirectory,
  writeTinyCheckpoint,
} from '../../unit/tiny-checkpoint.js';
import { openResidentModel } from '../../integration/generate-resident-model.js';

/** Sums run in FP32 in one, in FP64 in the other. */
const TOLERANCE = 2e-4;
const PROMPT_TOKENS = 24;
const FURTHER_TOKENS = 3;
const PREFILL_ROWS = 16;

type Config = Record<string, unknown>;

const tiny = {
  hidden_size: 64,
  intermediate_size: 40,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 300,
  max_position_embeddings: 512,
  num_experts_per_tok: 3,
  rope_theta: 10_000,
};
const fp8 = { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [128, 128] };
const llama3 = { rope_type: 'llama3', rope_theta: 10_000, factor: 8, low_freq_factor: 1, high_freq_factor: 4 };
/** Shapes of families that no fixture has: what changes in a fixture's config, or a whole one. */
const VARIANTS: readonly { name: string; from?: string; config: Config; text?: Config; promptTokens?: number }[] = [
  {
    name: 'OLMoE, clipped',
    config: { ...tiny, architectures: ['OlmoeForCausalLM'], num_experts: 12, clip_qkv: 0.7 },
  },
  {
    name: 'Hunyuan-A13B, with alpha and a tied head',
    config: {
      ...tiny,
      architectures: ['HunYuanMoEV1ForCausalLM'],
      num_experts: 12,
      head_dim: 24,
      moe_topk: [3, 3, 3],
      num_shared_expert: [1, 1, 1],
      rope_scaling: { type: 'dynamic', alpha: 1000 },
      tie_word_embeddings: true,
    },
  },
  {
    name: 'GLM-4.7-Flash, its last layer dense',
    config: {
      ...tiny,
      architectures: ['Glm4MoeLiteForCausalLM'],
      n_routed_experts: 12,
      moe_intermediate_size: 24,
      kv_lora_rank: 32,
      q_lora_rank: 24,
      qk_nope_head_dim: 20,
      qk_rope_head_dim: 8,
      v_head_dim: 28,
      mlp_layer_types: ['dense', 'sparse', 'dense'],
    },
  },
  {
    name: 'GLM-4.5 without norms and biases, in groups, wholly rotated',
    from: 'glm45',
    config: {
      use_qk_norm: false,
      attention_bias: false,
      n_group: 4,
      topk_group: 2,
      n_shared_experts: 2,
      first_k_dense_replace: 2,
      partial_rotary_factor: 1,
    },
  },
  {
    name: 'DeepSeek-V2 without low-rank queries and dense layers',
    from: 'deepseekv2-yarn',
    config: { q_lora_rank: null, first_k_dense_replace: 0, n_shared_experts: 1, v_head_dim: 20 },
  },
  {
    name: 'DeepSeek-V3 in FP8 of other sizes, without groups',
    from: 'deepseekv3-fp8',
    config: { q_lora_rank: null, n_group: 1, topk_group: 1, hidden_size: 256, qk_nope_head_dim: 24 },
  },
  {
    name: 'DeepSeek-V3 with halves rotated, not renormalized',
    from: 'deepseekv3',
    config: { rope_interleave: false, norm_topk_prob: false },
  },
  {
    name: 'Qwen2-MoE with windows, a dense layer and a tied head',
    from: 'qwen2moe',
    config: {
      use_sliding_window: true,
      sliding_window: 9,
      layer_types: null,
      mlp_only_layers: [1],
      qkv_bias: false,
      norm_topk_prob: true,
      tie_word_embeddings: true,
    },
  },
  {
    name: 'Qwen3-MoE in FP8, with biases',
    from: 'qwen3moe',
    config: { attention_bias: true, head_dim: 40, tie_word_embeddings: true, quantization_config: fp8 },
  },
  {
    name: 'Qwen3-Next with other heads, taps, intervals, and a dense layer',
    from: 'qwen3next',
    config: {
      linear_num_key_heads: 1,
      linear_num_value_heads: 3,
      linear_value_head_dim: 20,
      linear_conv_kernel_dim: 2,
      full_attention_interval: 3,
      mlp_only_layers: [2],
      norm_topk_prob: false,
      partial_rotary_factor: 0.5,
    },
  },
  {
    name: 'Gemma-4 with values of their own, biases, and no cap',
    from: 'gemma4moe',
    config: {},
    text: {
      attention_k_eq_v: false,
      final_logit_softcapping: null,
      num_hidden_layers: 3,
      layer_types: null,
      attention_bias: true,
      global_head_dim: 24,
    },
  },
  {
    name: 'Gemma-4 with another head, and a short window',
    from: 'gemma4moe',
    config: { tie_word_embeddings: false },
    text: { tie_word_embeddings: false, sliding_window: 3, num_global_key_value_heads: 2 },
  },
  {
    name: 'gpt-oss in MXFP4 without biases of attention, with other windows and limits',
    from: 'gptoss-mxfp4',
    config: { attention_bias: false, swiglu_limit: 3.5, intermediate_size: 96, layer_types: null, sliding_window: 5 },
  },
  {
    name: 'gpt-oss of uneven sizes, with its own rope',
    from: 'gptoss',
    config: { rope_parameters: null, intermediate_size: 52, hidden_size: 72, head_dim: 20 },
  },
  {
    name: 'ERNIE-4.5 with experts in every second layer, none shared',
    from: 'ernie45moe',
    config: {
      moe_layer_start_index: 0,
      moe_layer_end_index: -1,
      moe_layer_interval: 2,
      moe_num_shared_experts: 0,
      head_dim: 24,
      tie_word_embeddings: false,
    },
  },
  {
    name: 'LFM2 with more taps, without expert bias',
    from: 'lfm2moe',
    config: {
      conv_L_cache: 5,
      use_expert_bias: false,
      norm_topk_prob: false,
      num_dense_layers: 1,
      tie_embedding: false,
    },
  },
  {
    name: 'Phi without biases, with a window and more jitter',
    from: 'phimoe',
    config: { attention_bias: false, lm_head_bias: false, sliding_window: 7, router_jitter_noise: 0.3 },
  },
  {
    name: 'Granite with biases, a linear rope and a tied head',
    from: 'granitemoe',
    config: {
      attention_bias: true,
      tie_word_embeddings: true,
      rope_parameters: { rope_type: 'linear', factor: 2, rope_theta: 10_000 },
    },
  },
  {
    name: 'Laguna with gates of elements, capped router logits and other heads',
    from: 'laguna',
    config: {
      gating: 'per-element',
      moe_router_logit_softcapping: 0.7,
      num_attention_heads_per_layer: [2, 8, 4, 6, 2],
      mlp_layer_types: ['sparse', 'dense', 'sparse', 'sparse', 'dense'],
    },
  },
  {
    name: 'Step-3.5 with limits in all layers, not renormalized',
    from: 'step3p5',
    config: {
      swiglu_limits: [0, 0.02, 0.05, 0.1, 0, 0],
      swiglu_limits_shared: [0.1, 0, 0.05, 0.02, 0.1, 0],
      moe_layers_enum: '1,2,4',
      norm_expert_weight: false,
    },
  },
  {
    name: 'Cohere2-MoE by softmax, with biases, LayerNorm and two dense layers of which one has a window',
    from: 'cohere2moe-shared',
    config: {
      expert_selection_fn: 'softmax',
      attention_bias: true,
      first_k_dense_replace: 2,
      prefix_dense_sliding_window_pattern: 2,
      layer_norm_eps: 1e-3,
      logit_scale: 0.3,
      tie_word_embeddings: false,
    },
  },
  {
    name: 'Cohere2-MoE with RMS norms and the sum with its shared network',
    from: 'cohere2moe',
    config: { num_shared_experts: 3, shared_expert_combination_strategy: 'sum', norm_topk_prob: true, head_dim: 24 },
  },
  {
    name: 'Mistral 4 with groups, whole queries and a dense layer',
    from: 'mistral4',
    config: {},
    text: {
      q_lora_rank: null,
      n_group: 4,
      topk_group: 2,
      first_k_dense_replace: 1,
      routed_scaling_factor: 1.5,
      rope_parameters: {
        rope_type: 'yarn',
        factor: 4,
        original_max_position_embeddings: 8,
        llama_4_scaling_beta: 0.3,
        mscale: 0.7,
        mscale_all_dim: 1,
      },
    },
  },
  {
    name: 'MiMo-V2-Flash with biases, sinks everywhere and heads of their own in sliding layers',
    from: 'mimov2flash',
    config: {
      attention_bias: true,
      add_full_attention_sink_bias: true,
      swa_num_attention_heads: 6,
      swa_num_key_value_heads: 3,
      swa_head_dim: 20,
      swa_v_head_dim: 28,
      attention_value_scale: 1.4,
      norm_topk_prob: false,
    },
  },
  {
    name: 'DeepSeek-V3.2 whose indexer rotates neighbours and chooses more positions',
    from: 'deepseekv32',
    config: { index_topk: 30, indexer_rope_interleave: true },
    promptTokens: 40,
  },
  {
    name: 'GLM-5 with indexers of one head that choose few positions for three layers',
    from: 'glmmoedsa',
    config: {
      index_topk: 5,
      index_n_heads: 1,
      index_head_dim: 13,
      index_topk_pattern: null,
      indexer_types: ['full', 'shared', 'shared', 'full', 'shared'],
    },
  },
  {
    name: 'MiniMax-M3 with one key-value head, two local blocks and blocks of an odd size',
    from: 'minimaxm3',
    config: {},
    text: {
      num_key_value_heads: 1,
      sparse_attention_config: {
        use_sparse_attention: true,
        sparse_num_index_heads: 1,
        sparse_index_dim: 20,
        sparse_topk_blocks: 3,
        sparse_block_size: 5,
        sparse_local_block: 2,
        sparse_attention_freq: [1, 0, 1, 1, 0],
      },
    },
    promptTokens: 40,
  },
  {
    name: 'Nemotron-H with latent experts',
    from: 'nemotronh',
    config: { moe_latent_size: 22, time_step_limit: undefined },
  },
  {
    name: 'Nemotron-H with plain networks, groups of experts and biases of attention, without those of convolutions',
    from: 'nemotronh',
    config: {
      hybrid_override_pattern: 'M-ME*-M',
      use_conv_bias: false,
      n_group: 2,
      topk_group: 1,
      attention_bias: true,
      time_step_limit: undefined,
    },
  },
  {
    name: 'Granite-4 with rotation and four groups, without a shared network',
    from: 'granitemoehybrid',
    config: { position_embedding_type: 'rope', mamba_n_groups: 4, shared_intermediate_size: 0 },
  },
  {
    name: 'Kimi-Linear with other heads, taps, groups and dense layers',
    from: 'kimilinear',
    config: {
      linear_attn_config: {
        full_attn_layers: [1, 5],
        kda_layers: [2, 3, 4, 6],
        head_dim: 20,
        num_heads: 3,
        short_conv_kernel_size: 2,
      },
      first_k_dense_replace: 2,
      num_expert_group: 4,
      topk_group: 2,
      moe_renormalize: false,
      num_shared_experts: 2,
      v_head_dim: 20,
    },
  },
  { name: 'MiniMax-M2 wholly rotated', from: 'minimaxm2', config: { rotary_dim: 24 } },
  {
    name: "Mixtral with a window, one key-value head and Llama's rope",
    from: 'mixtral',
    config: {
      sliding_window: 5,
      head_dim: 20,
      num_key_value_heads: 1,
      rope_parameters: { ...llama3, original_max_position_embeddings: 64 },
    },
  },
];

function configOf({ from, config, text }: (typeof VARIANTS)[number]): Config {
  if (from === undefined) return config;
  const base = JSON.parse(readFileSync(join(packageRoot(), 'test', 'fixtures', from, 'config.json'), 'utf8')) as Config;
  const inner = { ...(base.text_config as Config), ...text };
  const changed = { ...base, ...config, ...(text === undefined ? {} : { text_config: inner }) };
  // An undefined value takes a key out, as one does that JSON has no words for: infinity.
  return JSON.parse(JSON.stringify(changed)) as Config;
}

/** From 0 to 1, the same for the same seed. */
function randomNumbers(seed: number): () => number {
  let state = (seed * 2654435761) >>> 0 || 1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 2246822519) + 3266489917) >>> 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

/** Random tensors of a checkpoint with this config.json. */
function randomTensors(config: Config): TinyTensor[] {
  const read = parseModelConfig(config, 'config.json').config;
  const byName = new Map<string, ExpectedTensor>();
  for (const expected of [...expectedTensors(read), ...expectedBiases(read)]) byName.set(expected.name, expected);
  return [...byName.values()].flatMap((expected, seed) =>
    expected.encoding === 'integers'
      ? [tableOf(expected, read.shape.experts)]
      : randomTensor(expected, read.quantization === 'fp8', seed + 1),
  );
}

function tableOf({ name, dimensions }: ExpectedTensor, experts: number): TinyTensor {
  return { name, dtype: 'I64', shape: dimensions, data: tokenTable(dimensions, experts) };
}

function randomTensor(expected: ExpectedTensor, fp8Weights: boolean, seed: number): TinyTensor[] {
  const { name, dimensions, place, encoding, slice } = expected;
  const next = randomNumbers(seed);
  const count = dimensions.reduce((product, size) => product * size, 1);
  const bytes = (length: number, make: () => number): Uint8Array => Uint8Array.from({ length }, make);
  if (encoding === 'mxfp4') {
    const [outer, columns] = [dimensions.slice(0, -1), dimensions.at(-1) ?? 0];
    const codes = bytes(count / 2, () => Math.floor(next() * 256));
    const scales = bytes(count / 32, () => 119 + Math.floor(next() * 4));
    return [
      { name: `${name}_blocks`, dtype: 'U8', shape: [...outer, columns / 32, 16], data: codes },
      { name: `${name}_scales`, dtype: 'U8', shape: [...outer, columns / 32], data: scales },
    ];
  }
  const role = place.kind === 'dense' ? place.role : '';
  const isMatrix = dimensions.length === 2 && !['embedding', 'lmHead', 'router'].includes(role);
  if (fp8Weights && isMatrix) {
    const shape = dimensions.map((size) => Math.ceil(size / 128));
    const scales = Float32Array.from(
      { length: shape.reduce((product, size) => product * size, 1) },
      () => 0.02 + 0.03 * next(),
    );
    const weights = bytes(count, () => Math.floor(next() * 96) + (next() < 0.5 ? 0 : 128));
    return [
      { name, dtype: 'F8_E4M3', shape: dimensions, data: weights },
      { name: `${name}_scale_inv`, dtype: 'F32', shape, data: new Uint8Array(scales.buffer) },
    ];
  }
  const centre = /norm|scalar|scale/i.test(name) && !name.endsWith('bias') ? 1 - (slice?.add ?? 0) : 0;
  const values = Float32Array.from({ length: count }, () => centre + 0.6 * (next() - 0.5));
  const halves = Uint16Array.from(new Uint32Array(values.buffer), (bits) => bits >>> 16);
  return [{ name, dtype: 'BF16', shape: dimensions, data: new Uint8Array(halves.buffer) }];
}

describe('the formulas in plain FP64', () => {
  const fixtures = join(packageRoot(), 'test', 'fixtures');
  for (const name of new Set(VARIANTS.flatMap(({ from }) => from ?? []))) {
    it(`say of the fixture ${name} what transformers says`, async () => {
      const { references } = JSON.parse(readFileSync(join(fixtures, name, 'reference.json'), 'utf8')) as {
        references: { prompt_token_ids: number[]; first_logits: number[] }[];
      };
      const [reference] = references;
      assert.ok(reference);
      const model = new PlainForward(await openCheckpoint(join(fixtures, name)));
      const last = model.run(reference.prompt_token_ids).at(-1) ?? new Float64Array();
      const off = last.reduce(
        (most, value, id) => Math.max(most, Math.abs(value - (reference.first_logits[id] ?? NaN))),
        0,
      );
      assert.ok(off < TOLERANCE, `logits are up to ${off} off`);
    });
  }
});

describe('other shapes of the families:', () => {
  for (const [number, variant] of VARIANTS.entries()) {
    it(`${variant.name}: the engine computes what the formulas say`, async () => {
      const config = configOf(variant);
      const next = randomNumbers(number + 1);
      const { promptTokens = PROMPT_TOKENS } = variant;
      const tokens = Array.from({ length: promptTokens + FURTHER_TOKENS }, () => Math.floor(next() * 250));
      await withTemporaryDirectory(async (directory) => {
        await writeTinyCheckpoint(directory, randomTensors(config), { config });
        const expected = new PlainForward(await openCheckpoint(directory)).run(tokens);
        const model = await openResidentModel(directory);
        const runner = model.createRunner(PREFILL_ROWS);
        const found = [await runner.prefill(tokens.slice(0, promptTokens))];
        for (const token of tokens.slice(promptTokens)) found.push(await runner.decode(token));
        await runner.end();
        model.dispose();
        for (const [step, logits] of found.entries()) {
          const row = expected[promptTokens - 1 + step] ?? new Float64Array();
          const spread = Math.max(1, ...row.map(Math.abs));
          const off = row.reduce((most, value, id) => Math.max(most, Math.abs(value - (logits[id] ?? NaN))), 0);
          assert.ok(off < TOLERANCE * spread, `step ${step}: logits are up to ${off} off`);
        }
      });
    });
  }
});
