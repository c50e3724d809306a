import assert from 'node:assert/strict';
import { checkModelShape } from '../../native/model-shape-checks.js';
import { exponential, logarithm } from '../../shared/base/arithmetic/elementary.js';
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
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';

const listOf = (length: number, ...entries: string[]): string[] =>
  Array.from({ length }, (_, layer) => entries[Math.min(layer, entries.length - 1)] ?? '');

/** Frequencies of a rope whose exponents have this number below them. */
function frequencies(theta: number, dimensions: number): number[] {
  const pairs = Math.ceil(dimensions / 2);
  return Array.from({ length: pairs }, (_, pair) =>
    Math.fround(exponential(-((2 * pair) / dimensions) * logarithm(theta))),
  );
}

describe('the config.json of families as they are published and saved again', () => {
  it('names Kimi-K2.5 in both spellings, with the keys of its images', () => {
    const other = { architectures: ['Kimi_K25ForConditionalGeneration'] };
    assert.deepEqual(shapeOf('kimik25', other), shapeOf('kimik25'));
    assert.equal(configOf('kimik25').use_unified_vision_chunk, true);
    refuses('kimik25', { projection_other: 1 }, 'MODEL_UNSUPPORTED', /projection_other is 1/);
  });

  it('has a share beside the ropes of Laguna, which is for kinds that have none', () => {
    const shape = shapeOf('laguna');
    const { full_attention: full, sliding_attention: sliding } = configOf('laguna').rope_parameters as Record<
      string,
      Config
    >;
    assert.ok(full !== undefined && sliding !== undefined);
    assert.deepEqual(shapeOf('laguna', { partial_rotary_factor: 0.5 }), shape);
    const without = withoutKeys(full, 'partial_rotary_factor');
    const changed = {
      partial_rotary_factor: 0.5,
      rope_parameters: { full_attention: without, sliding_attention: sliding },
    };
    assert.deepEqual(shapeOf('laguna', changed), shape);
    assert.deepEqual(
      shapeOf('laguna', { ...changed, partial_rotary_factor: undefined }).ropes[0]?.frequencies.length,
      8,
    );
  });

  it('has one rope for all kinds of layers of Laguna, or one for each', () => {
    const flat = shapeOf('laguna', {
      rope_parameters: { rope_type: 'default', rope_theta: 1000 },
      partial_rotary_factor: 0.75,
    });
    assert.deepEqual(
      flat.ropes.map((rope) => rope.frequencies),
      [frequencies(1000, 12), frequencies(1000, 12)],
    );
    assert.deepEqual(
      [0, 1].map((layer) => attentionOf(flat, layer).rotary?.rope),
      [0, 1],
    );
  });

  it("names Laguna's dense layers and the kinds of its gates, and repeats what is computed anyway", () => {
    const published = {
      mlp_layer_types: null,
      norm_topk_prob: true,
      moe_router_use_sigmoid: true,
      swa_attention_sink_enabled: false,
      gating_types: listOf(5, 'per-head'),
    };
    assert.deepEqual(shapeOf('laguna', { ...published, mlp_only_layers: [0] }), shapeOf('laguna'));
    assert.deepEqual(sparseLayers(shapeOf('laguna', { ...published, mlp_only_layers: [0, 1, 2] })), [3, 4]);
    assert.deepEqual(sparseLayers(shapeOf('laguna', published)), [1, 2, 3, 4]);
    refuses(
      'laguna',
      { mlp_only_layers: [1] },
      'MODEL_CORRUPT',
      /mlp_layer_types says dense for layer 0, and mlp_only/,
    );
    refuses('laguna', { gating_types: listOf(5, 'per-head', 'per-element') }, 'MODEL_UNSUPPORTED', /gating_types/);
    refuses('laguna', { gating_types: listOf(4, 'per-head') }, 'MODEL_CORRUPT', /gating_types has 4 entries/);
    for (const key of ['norm_topk_prob', 'moe_router_use_sigmoid', 'swa_attention_sink_enabled']) {
      const value = key.startsWith('swa');
      refuses('laguna', { [key]: value }, 'MODEL_UNSUPPORTED', new RegExp(`${key} is ${value}`));
    }
  });

  it('has the older keys of MiMo-V2-Flash beside its ropes by kind, and only the kinds that there are', () => {
    const rope = { rope_type: 'default', partial_rotary_factor: 0.334 };
    const full_attention = { ...rope, rope_theta: 5e6 };
    const sliding_attention = { ...rope, rope_theta: 10_000 };
    const shape = shapeOf('mimov2flash');
    const rope_parameters = { full_attention, sliding_attention };
    assert.deepEqual(shapeOf('mimov2flash', { rope_parameters }), shape);
    refuses(
      'mimov2flash',
      { rope_parameters, rope_theta: 1e6 },
      'MODEL_UNSUPPORTED',
      /rope_theta is 1000000, supported is 5000000/,
    );
    refuses('mimov2flash', { rope_parameters, swa_rope_theta: 5 }, 'MODEL_UNSUPPORTED', /swa_rope_theta is 5/);
    const own = { rope_theta: 5e6, rope_type: 'default' };
    const shared = { full_attention: own, sliding_attention: { ...own, rope_theta: 10_000 } };
    assert.deepEqual(shapeOf('mimov2flash', { rope_parameters: shared }), shape);
    const all = (mark: number): Config => ({ hybrid_layer_pattern: Array(5).fill(mark) as number[] });
    const fulls = shapeOf('mimov2flash', { ...all(0), rope_parameters: { full_attention } });
    assert.deepEqual(fulls.ropes, [shape.ropes[0]]);
    const windowed = shapeOf('mimov2flash', { ...all(1), rope_parameters: { sliding_attention } });
    assert.deepEqual([windowed.ropes, attentionOf(windowed, 4).rotary?.rope], [[shape.ropes[1]], 0]);
    assert.deepEqual(shapeOf('mimov2flash', all(0)).ropes, [shape.ropes[0]]);
    refuses('mimov2flash', { rope_parameters: { full_attention } }, 'MODEL_CORRUPT', /sliding_attention is missing/);
  });

  it("has Step-3.5's older keys beside its ropes by kind, which do not count", () => {
    const rope_parameters = {
      full_attention: { ...(configOf('step3p5').rope_scaling as Config), rope_theta: 5e6, partial_rotary_factor: 0.5 },
      sliding_attention: { rope_type: 'default', rope_theta: 10_000, partial_rotary_factor: 1 },
    };
    assert.deepEqual(shapeOf('step3p5', { rope_parameters }), shapeOf('step3p5'));
  });

  it("has null for a limit that Step-3.5's layers do not have, and heads of layers that guess", () => {
    const swiglu_limits = [null, null, null, 0.6, 0.8, null];
    assert.deepEqual(
      shapeOf('step3p5', { swiglu_limits, swiglu_limits_shared: [null, 0, 0, null, 0.5] }),
      shapeOf('step3p5'),
    );
    refuses('step3p5', { swiglu_limits: [0, 0, 'x', 0, 0] }, 'MODEL_CORRUPT', /a list of numbers and nulls/);
    const heads = (number: string): Config => ({ per_layer_config: { [number]: { num_attention_heads: 8 } } });
    assert.equal(attentionOf(shapeOf('step3p5', heads('01')), 1).heads, 8);
    assert.deepEqual(shapeOf('step3p5', heads('05')), shapeOf('step3p5'));
    refuses('step3p5', heads('06'), 'MODEL_UNSUPPORTED', /per_layer_config/);
  });
});

describe('ropes of shares that give no whole pairs', () => {
  it('rotate one dimension more, with the exponents of the odd number', () => {
    const sizes = { head_dim: 16, swa_head_dim: 16 };
    const { ropes } = shapeOf('mimov2flash', sizes);
    assert.deepEqual(
      ropes.map((rope) => rope.frequencies),
      [frequencies(5e6, 5), frequencies(10_000, 5)],
    );
    refuses('mimov2flash', { head_dim: 15, partial_rotary_factor: 1 }, 'MODEL_CORRUPT', /15 dimensions .* odd/);
    const linear = { rope_scaling: { type: 'linear', factor: 2 } };
    refuses('mimov2flash', { ...sizes, ...linear }, 'MODEL_CORRUPT', /5 dimensions .* odd/);
  });

  it("are Mistral 4's in whole, where the share is rounded down", () => {
    const text = configOf('mistral4').text_config as Config;
    const own = text.rope_parameters as Config;
    const sizes = { qk_nope_head_dim: 32, qk_rope_head_dim: 62, qk_head_dim: 94, head_dim: 94 };
    for (const partial_rotary_factor of [undefined, 62 / 94]) {
      const rope_parameters = { ...own, partial_rotary_factor };
      const { ropes } = shapeOf('mistral4', { text_config: { ...text, ...sizes, rope_parameters } });
      assert.equal(ropes[0]?.frequencies.length, 31);
    }
  });
});

describe('the config.json of published models with keys that change no answer', () => {
  it('has a number of Kimi-K2.5 that labels of its training have', () => {
    assert.deepEqual(shapeOf('kimik25', { ignore_index: -100 }), shapeOf('kimik25'));
  });

  it('says that no step of Nemotron-3-Ultra is beyond any number', () => {
    assert.deepEqual(shapeOf('nemotronh', { time_step_limit: [0, 1e308] }), shapeOf('nemotronh'));
    refuses('nemotronh', { time_step_limit: [0, 1] }, 'MODEL_UNSUPPORTED', /time_step_limit is \[0,1\]/);
  });

  it('says of MiniMax-M3 what it has not, and what its images take', () => {
    const text = configOf('minimaxm3').text_config as Config;
    const changed = { process_image_mode: 'dynamic_res', multimodal_projector_bias: true, num_reward_heads: 0 };
    const more = { img_token_compression_config: {}, attention_output_gate: false };
    assert.deepEqual(
      shapeOf('minimaxm3', { ...changed, img_token_compression_config: {}, text_config: { ...text, ...more } }),
      shapeOf('minimaxm3'),
    );
    const gated = { text_config: { ...text, attention_output_gate: true } };
    refuses('minimaxm3', gated, 'MODEL_UNSUPPORTED', /attention_output_gate is true/);
  });

  it('says that scales of FP8 are of blocks', () => {
    const fp8 = { quant_method: 'fp8', weight_block_size: [128, 128], act_per_tensor: false };
    const schemes = (more: Config): unknown => read('qwen3moe', { quantization_config: { ...fp8, ...more } }).schemes;
    assert.deepEqual(schemes({ weight_per_tensor: false }), schemes({}));
    const whole = { quantization_config: { ...fp8, weight_per_tensor: true } };
    refuses('qwen3moe', whole, 'MODEL_UNSUPPORTED', /weight_per_tensor is true/);
  });

  it('names a Gemma-4 without experts a dense model', () => {
    const text_config = { ...(configOf('gemma4moe').text_config as Config), enable_moe_block: false };
    refuses('gemma4moe', { text_config }, 'MODEL_UNSUPPORTED', /no layer of the model has experts/);
  });

  it('may not stand in itself thousands of times', () => {
    let deep: unknown = 1;
    for (let depth = 0; depth < 20_000; depth += 1) deep = { a: deep };
    assert.throws(() => read('qwen3moe', { deep }), {
      code: 'MODEL_CORRUPT',
      message: /has objects in more than 64 others/,
    });
  });
});

describe('the config.json of indexers', () => {
  it('may choose more positions than the context has, whatever they would take', () => {
    const shape = (maxPositions: number): void => {
      const changes = { index_topk: 1_000_000, max_position_embeddings: maxPositions };
      checkModelShape(shapeOf('deepseekv32', changes));
    };
    shape(1_000_000);
    assert.throws(() => shape(1_000_001), /values in a row of the mixer of layer 0/);
  });

  it("has keys of GLM-5's sharing and of its router", () => {
    const published = {
      index_topk_pattern: null,
      index_topk_freq: 4,
      index_skip_topk_offset: 3,
      index_share_for_mtp_iteration: true,
      moe_router_dtype: 'float32',
    };
    const shares = shapeOf('glmmoedsa', published).layers.map(
      ({ mixer }) => mixer.kind === 'latent' && mixer.sharesIndexer === true,
    );
    assert.deepEqual(shares, [false, false, false, true, true]);
    refuses('glmmoedsa', { index_share_for_mtp_iteration: false }, 'MODEL_UNSUPPORTED', /mtp_iteration is false/);
    refuses('glmmoedsa', { moe_router_dtype: 'bfloat16' }, 'MODEL_UNSUPPORTED', /moe_router_dtype is "bfloat16"/);
  });

  it('has lists of GLM-5 with entries for layers that guess', () => {
    const shape = shapeOf('glmmoedsa');
    assert.deepEqual(shapeOf('glmmoedsa', { index_topk_pattern: 'FSFSFF' }), shape);
    const indexer_types = ['full', 'shared', 'full', 'shared', 'full', 'full'];
    assert.deepEqual(shapeOf('glmmoedsa', { index_topk_pattern: null, indexer_types }), shape);
    refuses('glmmoedsa', { index_topk_pattern: 'FSFSFFF' }, 'MODEL_CORRUPT', /index_topk_pattern has 7 entries/);
  });

  it('lists dense layers beside a rule that does not count', () => {
    for (const [name, first_k_dense_replace] of [
      ['deepseekv32', 3],
      ['glmmoedsa', 3],
    ] as const) {
      const layers = shapeOf(name).layers.length;
      const mlp_layer_types = listOf(layers, 'dense', 'dense', 'sparse');
      const changed = shapeOf(name, { mlp_layer_types, first_k_dense_replace });
      assert.deepEqual(
        sparseLayers(changed),
        Array.from({ length: layers - 2 }, (_, layer) => layer + 2),
        name,
      );
    }
    const lite = { ...withoutKeys(configOf('deepseekv3'), 'first_k_dense_replace', 'model_type', 'rope_scaling') };
    const config = {
      ...lite,
      architectures: ['Glm4MoeLiteForCausalLM'],
      first_k_dense_replace: 1,
      mlp_layer_types: listOf(4, 'dense', 'dense', 'sparse'),
    };
    assert.deepEqual(sparseLayers(parseModelConfig(config, 'config.json').config.shape), [2, 3]);
  });

  it('has the names that versions of transformers have for its layers', () => {
    for (const kind of ['indexed_attention', 'deepseek_sparse_attention', 'dynamic_sparse_attention']) {
      for (const name of ['deepseekv32', 'glmmoedsa']) {
        const shape = shapeOf(name);
        const changes = { layer_types: listOf(shape.layers.length, kind), output_indexer_loss: false };
        assert.deepEqual(read(name, changes).shape, shape);
        refuses(name, { output_indexer_loss: true }, 'MODEL_UNSUPPORTED', /output_indexer_loss is true/);
      }
    }
  });
});
