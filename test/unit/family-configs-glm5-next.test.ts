import assert from 'node:assert/strict';
import { type Config, configOf, refuses, shapeOf } from './fixture-config.js';

const KEY = 'glm5next';

/** Changes of the text's config. */
function text(changes: Config): Config {
  return { text_config: { ...(configOf(KEY)['text_config'] as Config), ...changes } };
}

describe('the config.json of GLM-5-Next', () => {
  it('has latent attention without rotation, whose indexer chooses pools', () => {
    const { layers, ropes } = shapeOf(KEY);
    assert.deepEqual(ropes, []);
    assert.deepEqual(
      layers.map(({ mixer }) => mixer.kind),
      ['delta', 'latent', 'delta', 'delta', 'latent'],
    );
    const mixer = layers[1]?.mixer;
    assert.ok(mixer?.kind === 'latent');
    const { queryRank, ropeSize, normEpsilon, rotary, indexer } = mixer;
    assert.deepEqual([queryRank, ropeSize, normEpsilon, rotary], [24, 0, Math.fround(1e-5), null]);
    assert.deepEqual(indexer, {
      heads: 16,
      headDim: 16,
      positions: 16,
      normEpsilon: Math.fround(1e-6),
      rotary: null,
      poolPositions: 4,
    });
    const newer = ['linear_attention', 'indexed_attention', 'linear_attention', 'linear_attention'];
    assert.deepEqual(shapeOf(KEY, text({ layer_types: [...newer, 'indexed_attention'] })), shapeOf(KEY));
    refuses(KEY, text({ qk_rope_head_dim: 8 }), 'MODEL_UNSUPPORTED', /qk_rope_head_dim is 8/);
    refuses(KEY, text({ index_topk: 18 }), 'MODEL_CORRUPT', /18 chosen positions are not a multiple of pools of 4/);
    refuses(KEY, text({ q_lora_rank: null }), 'MODEL_CORRUPT', /its indexer needs low-rank queries/);
    refuses(KEY, text({ index_kpool_always_select_tail: false }), 'MODEL_UNSUPPORTED', /always_select_tail is false/);
    const shared = ['full', 'full', 'full', 'full', 'shared'];
    refuses(KEY, text({ indexer_types: shared }), 'MODEL_UNSUPPORTED', /indexer_types is "shared"/);
    refuses(KEY, text({ indexer_types: null, index_topk_freq: 2 }), 'MODEL_UNSUPPORTED', /index_topk_freq/);
  });

  it('has Kimi delta attention with a floor of its decays, limited networks, and streams that end in their mean', () => {
    const { layers, expert, streams } = shapeOf(KEY);
    const mixer = layers[0]?.mixer;
    assert.ok(mixer?.kind === 'delta');
    assert.deepEqual(
      [mixer.decayFloor, mixer.decayWidth, mixer.keyHeads, mixer.keyDim, mixer.taps, mixer.lowRank],
      [-5, 'channel', 4, 12, 4, 12],
    );
    const own = { head_dim: 12, num_heads: 4, short_conv_kernel_size: 4 };
    const floorOf = (changes: Config): unknown => {
      const [first] = shapeOf(KEY, text(changes)).layers;
      return first?.mixer.kind === 'delta' ? first.mixer.decayFloor : null;
    };
    assert.equal(floorOf({ linear_attn_config: own }), -5);
    assert.equal(floorOf({ linear_attn_config: { ...own, gate_lower_bound: -3 } }), -3);
    assert.equal(floorOf({ linear_attn_config: own, linear_lower_bound: -2 }), -2);
    refuses(KEY, text({ linear_attn_config: { ...own, safe_gate: false } }), 'MODEL_UNSUPPORTED', /safe_gate is false/);
    refuses(KEY, text({ linear_lower_bound: null }), 'MODEL_UNSUPPORTED', /linear_lower_bound is null/);
    assert.deepEqual(
      layers.map(({ routed, always }) => [routed?.score, always?.glu.limit, always?.glu.intermediateSize]),
      [[undefined, 2, 60], ...Array.from({ length: 4 }, () => ['sigmoid', 2, 20])],
    );
    assert.deepEqual([expert.limit, layers[1]?.routed?.scale], [2, 2.5]);
    assert.deepEqual(streams, { kind: 'mixed', count: 4, epsilon: Math.fround(1e-6), rounds: 20, ending: 'mean' });
  });

  it('has the keys of GLM-5.3-Flash as it is published', () => {
    const kinds = ['linear_attention', 'deepseek_sparse_attention', 'linear_attention', 'linear_attention'];
    const own = configOf(KEY)['text_config'] as Config;
    const lists = { kda_layers: [0, 2, 3], full_attn_layers: [1, 4] };
    const published = {
      layer_types: [...kinds, 'deepseek_sparse_attention'],
      linear_attn_config: { ...(own['linear_attn_config'] as Config), ...lists },
      index_kpool_compress: true,
      index_share_for_mtp_iteration: true,
      indexer_rope_interleave: true,
      mhc: true,
      mla_use_nope: true,
      moe_router_dtype: 'float32',
    };
    assert.deepEqual(shapeOf(KEY, text(published)), shapeOf(KEY));
    assert.deepEqual(shapeOf(KEY, text({ ...published, layer_types: null })), shapeOf(KEY));
    const turned = { kda_layers: [1, 2, 3], full_attn_layers: [0, 4] };
    const other = { ...published, linear_attn_config: { ...published.linear_attn_config, ...turned } };
    refuses(KEY, text(other), 'MODEL_CORRUPT', /different kinds of layer 0/);
    const fromOne = { ...lists, kda_layers: [1, 3, 4], full_attn_layers: [2, 5] };
    const counted = { ...published, linear_attn_config: { ...published.linear_attn_config, ...fromOne } };
    refuses(KEY, text(counted), 'MODEL_CORRUPT', /do not name each of the 5 layers once/);
    for (const key of ['index_kpool_compress', 'mhc', 'mla_use_nope']) {
      refuses(KEY, text({ ...published, [key]: false }), 'MODEL_UNSUPPORTED', new RegExp(`${key} is false`));
    }
  });
});
