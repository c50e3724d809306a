import assert from 'node:assert/strict';
import { expectedTensors } from '../../packs/checkpoint/expected-tensors.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';

import { attentionOf, type Config, refuses, sparseLayers } from './fixture-config.js';

describe('the config.json of families without a fixture', () => {
  const base = {
    hidden_size: 32,
    intermediate_size: 40,
    num_hidden_layers: 3,
    num_attention_heads: 4,
    vocab_size: 50,
    max_position_embeddings: 256,
    num_experts: 8,
    num_experts_per_tok: 2,
    hidden_act: 'silu',
  };
  const names = (config: Config): Set<string> =>
    new Set([...expectedTensors(parseModelConfig(config, 'config.json').config)].map(({ name }) => name));

  it('reads OLMoE: norms over all heads at once, clipped or not', () => {
    const config = { ...base, architectures: ['OlmoeForCausalLM'], clip_qkv: 8, norm_topk_prob: false };
    const { shape } = parseModelConfig(config, 'config.json').config;
    const { queryKeyNorm, clip, bias } = attentionOf(shape, 0);
    assert.deepEqual([queryKeyNorm, clip, bias], ['all', 8, false]);
    assert.deepEqual([shape.layers[0]?.routed?.normalize, shape.expert.intermediateSize], [false, 40]);
    assert.ok(names(config).has('model.layers.2.mlp.experts.7.gate_proj.weight'));
    assert.ok(names(config).has('model.layers.0.self_attn.q_norm.weight'));
  });

  it('reads Hunyuan-A13B: norms behind the rotation, lists by layer that agree, alpha', () => {
    const config = {
      ...base,
      architectures: ['HunYuanMoEV1ForCausalLM'],
      attention_head_dim: 16,
      tie_word_embeddings: true,
      moe_topk: [2, 2, 2],
      num_experts_per_tok: null,
      moe_intermediate_size: [24, 24, 24],
      num_shared_expert: [2, 2, 2],
      use_qk_norm: true,
      rope_theta: 10_000,
      rope_scaling: { type: 'dynamic', alpha: 1000, factor: 1, beta_fast: 32, beta_slow: 1, mscale: 1 },
    };
    const { shape, tiedEmbeddings } = parseModelConfig(config, 'config.json').config;
    const { headDim, normAfterRotation } = attentionOf(shape, 0);
    assert.deepEqual([headDim, normAfterRotation, tiedEmbeddings], [16, true, true]);
    assert.deepEqual([shape.expertsPerToken, shape.expert.intermediateSize], [2, 24]);
    assert.deepEqual(shape.layers[0]?.always, { glu: { ...shape.expert, intermediateSize: 48 }, gated: false });
    const found = names(config);
    for (const name of [
      'self_attn.query_layernorm',
      'mlp.gate.wg',
      'mlp.shared_mlp.up_proj',
      'mlp.experts.0.up_proj',
    ]) {
      assert.ok(found.has(`model.layers.1.${name}.weight`), name);
    }
    assert.throws(() => parseModelConfig({ ...config, moe_topk: [2, 1, 2] }, 'c'), /moe_topk is \[2,1,2\].*all layers/);
    assert.throws(() => parseModelConfig({ ...config, use_cla: true }, 'c'), /use_cla is true/);
  });

  it("reads GLM-4.7-Flash: DeepSeek's attention, dense layers by list", () => {
    const config = {
      ...base,
      architectures: ['Glm4MoeLiteForCausalLM'],
      moe_intermediate_size: 12,
      n_routed_experts: 8,
      q_lora_rank: 20,
      kv_lora_rank: 16,
      qk_nope_head_dim: 12,
      qk_rope_head_dim: 8,
      v_head_dim: 10,
      mlp_layer_types: ['dense', 'sparse', 'dense'],
      routed_scaling_factor: 1.8,
      n_shared_experts: 1,
      num_nextn_predict_layers: 1,
    };
    const { shape, layout } = parseModelConfig(config, 'config.json').config;
    assert.deepEqual(sparseLayers(shape), [1]);
    const { mixer } = shape.layers[0] ?? {};
    assert.ok(mixer?.kind === 'latent' && mixer.rotary?.pairing === 'neighbours');
    assert.equal(mixer.normEpsilon, Math.fround(1e-6));
    const key = layout.dense({ role: 'keyExpansion', layer: 1 });
    assert.deepEqual(key.dimensions, [4 * 22, 16]);
    assert.deepEqual([key.slice?.blockRows, key.slice?.stepRows, key.slice?.transposed], [12, 22, true]);
    assert.equal(layout.guessing.count, 1);
    assert.equal(layout.guessing.layerBehindLast('model.layers.3.eh_proj.weight'), 3);
    assert.equal(layout.guessing.layerBehindLast('model.layers.2.x.weight'), null);
  });

  it('refuses numbers that would give no answer', () => {
    refuses('phimoe', { router_jitter_noise: -1 }, 'MODEL_CORRUPT', /jitter/);
    refuses('deepseekv3', { routed_scaling_factor: -1 }, 'MODEL_CORRUPT', /scal/);
    const llama3 = { rope_type: 'llama3', rope_theta: 10_000, factor: 8, low_freq_factor: 4, high_freq_factor: 1 };
    refuses(
      'qwen3moe',
      { rope_parameters: llama3 },
      'MODEL_CORRUPT',
      /low_freq_factor 4 is not below high_freq_factor 1/,
    );
  });
});
