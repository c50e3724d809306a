import assert from 'node:assert/strict';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { expertLayerNumbers, type ModelShape } from '../../shared/model/model-shape.js';

/** As Qwen3-30B-A3B's config.json has them, in numbers of a tiny model. */
const OLD_STYLE = {
  architectures: ['Qwen3MoeForCausalLM'],
  attention_bias: false,
  decoder_sparse_step: 1,
  eos_token_id: 151645,
  head_dim: 24,
  hidden_act: 'silu',
  hidden_size: 64,
  intermediate_size: 160,
  max_position_embeddings: 512,
  max_window_layers: 4,
  mlp_only_layers: [],
  model_type: 'qwen3_moe',
  moe_intermediate_size: 48,
  norm_topk_prob: true,
  num_attention_heads: 4,
  num_experts: 16,
  num_experts_per_tok: 4,
  num_hidden_layers: 4,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_scaling: null,
  rope_theta: 1000000.0,
  sliding_window: null,
  tie_word_embeddings: false,
  torch_dtype: 'bfloat16',
  use_sliding_window: false,
  vocab_size: 300,
};

function shapeOf(change: Record<string, unknown>): ModelShape {
  return parseModelConfig({ ...OLD_STYLE, ...change }, 'config.json').config.shape;
}

describe('Qwen3-MoE config.json', () => {
  it('has the same meaning in the published form and in that of transformers 5', async () => {
    const { shape } = await openCheckpoint(join(packageRoot(), 'test', 'fixtures', 'qwen3moe'));
    assert.deepEqual(shapeOf({ rms_norm_eps: 1e-5 }), shape);
  });

  it('sets query and key norms of each head, head size, and whether experts are renormalized', () => {
    const [layer] = shapeOf({}).layers;
    assert.ok(layer?.mixer.kind === 'attention');
    assert.deepEqual([layer.mixer.queryKeyNorm, layer.mixer.headDim, layer.mixer.bias], ['head', 24, false]);
    assert.equal(layer.routed?.normalize, true);
    assert.equal(shapeOf({ norm_topk_prob: false }).layers[0]?.routed?.normalize, false);
  });

  it('puts experts into every n-th layer, except for the listed layers', () => {
    assert.deepEqual(expertLayerNumbers(shapeOf({ num_hidden_layers: 7, decoder_sparse_step: 3 })), [2, 5]);
    const some = shapeOf({ mlp_only_layers: [0, 2] });
    assert.deepEqual(expertLayerNumbers(some), [1, 3]);
    assert.deepEqual(some.layers[0]?.always?.glu.intermediateSize, 160);
    assert.equal(some.expert.intermediateSize, 48);
  });

  it('switches windows and biases on', () => {
    const { mixer } = shapeOf({ use_sliding_window: true, sliding_window: 32, attention_bias: true }).layers[0] ?? {};
    assert.ok(mixer?.kind === 'attention');
    assert.deepEqual([mixer.window, mixer.bias, mixer.outputBias], [32, true, true]);
  });
});
