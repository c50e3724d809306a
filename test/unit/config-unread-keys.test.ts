import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { EXPLAINED_KEYS } from '../../packs/model-config/explained-keys.js';
import { PUBLISHED_KEYS } from './published-keys.js';

type Config = Record<string, unknown>;

const FIXTURES = join(packageRoot(), 'test', 'fixtures');
const NAMES = readdirSync(FIXTURES).filter((name) => existsSync(join(FIXTURES, name, 'config.json')));

function configOf(name: string): Config {
  return JSON.parse(readFileSync(join(FIXTURES, name, 'config.json'), 'utf8')) as Config;
}

function parse(config: Config): unknown {
  const { shape, tiedEmbeddings, quantization } = parseModelConfig(config, 'config.json').config;
  return { shape, tiedEmbeddings, quantization };
}

function refuses(config: Config, code: ErrorCode, message: RegExp): void {
  assert.throws(
    () => parse(config),
    (thrown: unknown) => {
      assert.ok(thrown instanceof OdmoeError, String(thrown));
      assert.equal(thrown.code, code, thrown.message);
      assert.match(thrown.message, message);
      return true;
    },
  );
}

/** Paths of the objects in a config.json that have keys of the model. */
function objectsOf(config: Config): string[][] {
  const inner = ['text_config', 'rope_scaling', 'rope_parameters', 'quantization_config'];
  const isObject = (value: unknown): value is Config => typeof value === 'object' && value !== null;
  return [
    [],
    ...Object.entries(config).flatMap(([key, value]) =>
      inner.includes(key) && isObject(value) ? objectsOf(value).map((path) => [key, ...path]) : [],
    ),
  ];
}

function withKey(config: Config, path: readonly string[], key: string, value: unknown): Config {
  const [first, ...rest] = path;
  if (first === undefined) return { ...config, [key]: value };
  return { ...config, [first]: withKey(config[first] as Config, rest, key, value) };
}

describe('unread keys of config.json', () => {
  for (const name of NAMES) {
    it(`are refused by name, in whatever object they stand: ${name}`, () => {
      const config = configOf(name);
      fc.assert(
        fc.property(
          fc.constantFrom(...objectsOf(config)),
          fc.constantFrom('attention_sharpness', 'mlp_alpha', 'residual_mixing', 'use_other_norm'),
          fc.constantFrom<unknown>(0, 1, 2.5, true, false, 'x', [1], { a: 1 }),
          (path, key, value) => {
            const named = new RegExp(`${[...path, key].join('\\.')} is `);
            refuses(withKey(config, path, key, value), 'MODEL_UNSUPPORTED', named);
            // A key with the value null has no effect.
            assert.deepEqual(parse(withKey(config, path, key, null)), parse(config));
          },
        ),
        { numRuns: 20 },
      );
    });
  }

  it('are accepted where published files have them and they change nothing', () => {
    for (const { fixture, keys } of PUBLISHED_KEYS) {
      const config = configOf(fixture);
      const text = config.text_config as Config | undefined;
      const more = text === undefined ? { ...config, ...keys } : { ...config, text_config: { ...text, ...keys } };
      assert.deepEqual(parse(more), parse(config), fixture);
    }
  });

  it('each have a reason where they are explained', () => {
    for (const [key, { why }] of Object.entries(EXPLAINED_KEYS)) assert.ok(why.length > 10, key);
  });

  it('are explained for certain values only where other values would change an answer', () => {
    const wrong: [fixture: string, change: Config][] = [
      ['mixtral', { attention_bias: true }],
      ['deepseekv4', { hc_sinkhorn_iters: 1001 }],
      ['mixtral', { use_sliding_window: true, sliding_window: 4 }],
      ['mixtral', { mlp_bias: true }],
      ['mixtral', { n_shared_experts: 1 }],
      ['mixtral', { logits_scaling: 2 }],
      ['mixtral', { clip_qkv: 8 }],
      ['mixtral', { norm_topk_prob: false }],
      ['mixtral', { scoring_func: 'sigmoid' }],
      ['mixtral', { final_logit_softcapping: 30 }],
      ['mixtral', { layer_types: ['full_attention', 'sliding_attention', 'full_attention', 'full_attention'] }],
      ['qwen3moe', { use_qk_norm: false }],
      ['qwen3moe', { use_sliding_window: true, sliding_window: 8, max_window_layers: 2 }],
      ['qwen2moe', { attention_bias: true }],
      ['qwen2moe', { layer_types: new Array(4).fill('sliding_attention'), use_sliding_window: false }],
      ['deepseekv2', { norm_topk_prob: true }],
      ['deepseekv2', { qk_head_dim: 30 }],
      ['gptoss', { norm_topk_prob: false }],
      ['minimaxm2', { layernorm_mlp_beta: 2 }],
      ['minimaxm2', { norm_topk_prob: false }],
      ['lfm2moe', { scoring_func: 'softmax' }],
      ['ernie45moe', { moe_gate: 'top2_fused' }],
      ['ernie45moe', { use_rmsnorm: false }],
    ];
    for (const [fixture, change] of wrong) {
      const [key = ''] = Object.keys(change).slice(-1);
      refuses({ ...configOf(fixture), ...change }, 'MODEL_UNSUPPORTED', new RegExp(`${key} is `));
    }
  });

  it('do not include null keys where transformers treats null unlike a missing key', () => {
    const nulls: [fixture: string, key: string][] = [
      ['granitemoe', 'logits_scaling'],
      ['granitemoe', 'residual_multiplier'],
      ['deepseekv2', 'routed_scaling_factor'],
      ['gptoss', 'swiglu_limit'],
      ['qwen3moe', 'rms_norm_eps'],
      ['deepseekv3', 'norm_topk_prob'],
      ['deepseekv3', 'rope_interleave'],
      ['deepseekv3', 'n_group'],
      ['deepseekv3', 'topk_group'],
      ['glm45', 'partial_rotary_factor'],
      ['qwen2moe', 'qkv_bias'],
      ['gptoss', 'sliding_window'],
      ['gptoss', 'attention_bias'],
      ['lfm2moe', 'use_expert_bias'],
      ['minimaxm2', 'use_routing_bias'],
    ];
    for (const [fixture, key] of nulls) {
      refuses({ ...configOf(fixture), [key]: null }, 'MODEL_UNSUPPORTED', new RegExp(`${key} is null`));
    }
  });

  it('are refused in a rope whose type does not read them, unless they change nothing', () => {
    const rope = { rope_type: 'default', rope_theta: 1e6 };
    const linear = { ...rope, rope_type: 'linear', factor: 2 };
    const wrong: [rope: Config, key: string][] = [
      [{ ...rope, factor: 4 }, 'factor'],
      [{ ...rope, low_freq_factor: 1 }, 'low_freq_factor'],
      [{ ...linear, attention_factor: 2 }, 'attention_factor'],
      [{ ...linear, beta_fast: 16 }, 'beta_fast'],
      [{ ...linear, mscale_all_dim: 1 }, 'mscale_all_dim'],
      [{ ...rope, short_factor: [1, 1] }, 'short_factor'],
      [{ ...rope, alpha: 1000 }, 'alpha'],
      [{ ...rope, truncate: false }, 'truncate'],
    ];
    for (const [rope_parameters, key] of wrong) {
      const named = new RegExp(`rope_parameters\\.${key} is `);
      refuses({ ...configOf('mixtral'), rope_parameters }, 'MODEL_UNSUPPORTED', named);
    }
    const neutral = { factor: 1, attention_factor: 1, beta_fast: 32, mrope_section: [4, 2, 2], alpha: null };
    const rope_parameters = { ...rope, ...neutral, original_max_position_embeddings: 64 };
    assert.deepEqual(parse({ ...configOf('mixtral'), rope_parameters }), parse(configOf('mixtral')));
  });

  it('are refused in the outer object where an inner object is the model', () => {
    for (const change of [{ rope_theta: 5 }, { num_experts: 4 }, { hidden_act: 'relu' }, { attention_bias: true }]) {
      for (const fixture of ['qwen35moe', 'gemma4moe']) {
        const [key = ''] = Object.keys(change);
        const config: Config = { ...configOf(fixture), ...change };
        refuses(config, 'MODEL_UNSUPPORTED', new RegExp(`: ${key} is `));
      }
    }
  });

  it('are refused where they name layers that the model does not have', () => {
    refuses({ ...configOf('qwen3moe'), mlp_only_layers: [4] }, 'MODEL_CORRUPT', /mlp_only_layers has layer 4/);
    refuses({ ...configOf('minimaxm2'), attn_type_list: [1, 1, 1] }, 'MODEL_CORRUPT', /attn_type_list has 3 entries/);
    const text = configOf('gemma4moe').text_config as Config;
    const older = ['global_head_dim', 'num_global_key_value_heads'];
    const rest = Object.fromEntries(Object.entries(text).filter(([key]) => !older.includes(key)));
    const ofGlobal = { head_dim: 32, num_key_value_heads: 1 };
    const per_layer_config = { '02': ofGlobal, '05': ofGlobal };
    const padded = { ...configOf('gemma4moe'), text_config: { ...rest, per_layer_config } };
    assert.deepEqual(parse(padded), parse(configOf('gemma4moe')));
    const beyond = { ...rest, per_layer_config: { ...per_layer_config, '06': ofGlobal } };
    refuses({ ...padded, text_config: beyond }, 'MODEL_UNSUPPORTED', /per_layer_config\.06 is /);
  });
});

describe('duplicate values of config.json', () => {
  it('must agree, under two names or in two objects', () => {
    const cases: [fixture: string, change: Config, message: RegExp][] = [
      ['mixtral', { num_experts: 4 }, /num_experts is 4 and num_local_experts is 8/],
      ['mixtral', { layer_norm_eps: 1e-3 }, /rms_norm_eps is .* and layer_norm_eps is 0.001/],
      ['mixtral', { rope_theta: 5 }, /rope_parameters\.rope_theta is 1000000 and rope_theta is 5/],
      ['gptoss-mxfp4', { experts_per_token: 2 }, /num_experts_per_tok is 4 and experts_per_token is 2/],
      ['minimaxm2', { partial_rotary_factor: 1 }, /partial_rotary_factor 1 of 24 dimensions is not rotary_dim 12/],
      ['mixtral', { model_type: 'qwen2_moe' }, /name two families, mixtral and qwen2_moe/],
      ['mixtral', { architectures: ['MixtralForCausalLM', 'OlmoeForCausalLM'] }, /two families, mixtral and olmoe/],
      ['lfm2moe', { tie_word_embeddings: false }, /tie_word_embeddings is false and tie_embedding is true/],
      ['gemma4moe', { tie_word_embeddings: false }, /tie_word_embeddings is (true|false) and/],
      ['qwen3next', { layer_types: [...new Array<string>(7).fill('linear_attention'), 'full_attention'] }, /layer 3/],
      ['deepseekv3', { mlp_layer_types: ['dense', 'dense', 'sparse', 'sparse'] }, /dense for layer 1, and first_k/],
      ['qwen3moe', { mlp_layer_types: ['dense', 'sparse', 'sparse', 'sparse'] }, /decoder_sparse_step.* sparse/],
      ['deepseekv3', { num_mtp_layers: 2 }, /num_nextn_predict_layers is 1 and num_mtp_layers is 2/],
    ];
    for (const [fixture, change, message] of cases) {
      refuses({ ...configOf(fixture), ...change }, 'MODEL_CORRUPT', message);
    }
    assert.deepEqual(parse({ ...configOf('mixtral'), num_experts: 8, rope_theta: 1e6 }), parse(configOf('mixtral')));
  });
});
