import assert from 'node:assert/strict';
import type { PooledMixer } from '../../shared/model/model-shape.js';
import { type Config, configOf, refuses, shapeOf } from './fixture-config.js';

const KEY = 'deepseekv4';
const NEWER_KINDS = [
  'sliding_attention',
  'compressed_sparse_attention',
  'heavily_compressed_attention',
  'compressed_sparse_attention',
  'sliding_attention',
];

function mixersOf(changes: Config = {}): PooledMixer[] {
  return shapeOf(KEY, changes).layers.map(({ mixer }) => {
    assert.ok(mixer.kind === 'pooled');
    return mixer;
  });
}

describe('the config.json of DeepSeek-V4', () => {
  it('gives each layer its pools, by ratios or by kinds of layers', () => {
    const [window, sparse, heavy] = mixersOf();
    assert.ok(window !== undefined && sparse !== undefined && heavy !== undefined);
    assert.deepEqual(
      [window.pools, window.rotary, window.window],
      [undefined, { rope: 0, pairing: 'neighbours', offset: 16 }, 8],
    );
    assert.deepEqual(sparse.pools, {
      positions: 4,
      overlaps: true,
      indexer: { heads: 16, headDim: 16, entries: 6, rotary: { rope: 1, pairing: 'neighbours', offset: 8 } },
    });
    assert.deepEqual(heavy.pools, { positions: 128, overlaps: false });
    const { heads, headDim, queryRank, outputGroups, outputRank, rotary } = heavy;
    assert.deepEqual([heads, headDim, queryRank, outputGroups, outputRank, rotary.rope], [4, 24, 24, 2, 16, 1]);
    assert.deepEqual(mixersOf({ compress_ratios: null, layer_types: NEWER_KINDS }), mixersOf());
    assert.deepEqual(
      mixersOf({ compress_ratios: [0, 4, 128, 4, 0, 0] }),
      mixersOf(),
      'the layer that guesses is named',
    );
    // DeepSeek-V4-Flash-0731 has three layers that guess, and num_nextn_predict_layers is 1.
    const dspark = { dspark_block_size: 5, dspark_target_layer_ids: [2, 3, 4], dspark_markov_rank: 256 };
    assert.deepEqual(mixersOf({ ...dspark, compress_ratios: [0, 4, 128, 4, 0, 0, 0, 0] }), mixersOf());
    const rates = { compressed_sparse_attention: 2, heavily_compressed_attention: 32 };
    const [, two, many] = mixersOf({ compress_rates: rates });
    assert.deepEqual([two?.pools?.positions, many?.pools?.positions], [2, 32]);
    assert.equal(mixersOf({ compress_rate_hca: 64 })[2]?.pools?.positions, 64);
    refuses(KEY, { compress_ratios: [0, 4, 128, 4] }, 'MODEL_CORRUPT', /compress_ratios has 4 entries/);
    refuses(KEY, { compress_ratios: [0, 4, 128, 4, 8] }, 'MODEL_UNSUPPORTED', /compress_ratios is 8/);
    refuses(KEY, { layer_types: [...NEWER_KINDS.slice(1), 'sliding_attention'] }, 'MODEL_CORRUPT', /layer_types says/);
    refuses(KEY, { o_groups: 3 }, 'MODEL_CORRUPT', /4 heads are not a multiple of 3 groups/);
    refuses(KEY, { num_key_value_heads: 2 }, 'MODEL_UNSUPPORTED', /num_key_value_heads is 2/);
    refuses(KEY, { qk_rope_head_dim: 7 }, 'MODEL_CORRUPT', /7 dimensions/);
    refuses(KEY, { index_head_dim: 6 }, 'MODEL_CORRUPT', /do not fit a head of 6/);
  });

  it('has a plain rope for windows alone, and one by YaRN without a factor for layers with pools', () => {
    const [plain, yarn] = shapeOf(KEY).ropes;
    assert.deepEqual([plain?.scale, yarn?.scale, plain?.frequencies.length], [1, 1, 4]);
    const [, unscaled] = shapeOf(KEY, { rope_scaling: null }).ropes;
    assert.notDeepEqual(yarn, unscaled);
    const { rope_scaling: scaling } = configOf(KEY);
    const { type, ...parameters } = scaling as Config;
    const share = { partial_rotary_factor: 8 / 24 };
    const nested = {
      main: { rope_type: 'default', rope_theta: 10_000, ...share },
      compress: { ...parameters, rope_type: type, rope_theta: 160_000, attention_factor: 1, ...share },
    };
    assert.deepEqual(shapeOf(KEY, { rope_scaling: null, rope_parameters: nested }).ropes, [plain, yarn]);
    const scaled = { ...nested, compress: { ...nested.compress, attention_factor: 1.25 } };
    assert.equal(shapeOf(KEY, { rope_scaling: null, rope_parameters: scaled }).ropes[1]?.scale, 1.25);
    refuses(KEY, { partial_rotary_factor: 0.5 }, 'MODEL_CORRUPT', /partial_rotary_factor 0.5 of 24/);
  });

  it('chooses experts by token in the first layers, limits networks, and mixes streams', () => {
    const { layers, expert, streams } = shapeOf(KEY);
    const routers = layers.map(({ routed }) => routed);
    assert.deepEqual(
      routers.map((router) => [router?.byToken ?? false, router?.choiceBias, router?.score]),
      [[true, false, 'sqrt-softplus'], ...Array.from({ length: 4 }, () => [false, true, 'sqrt-softplus'])],
    );
    assert.deepEqual([routers[1]?.normalize, routers[1]?.scale], [true, 1.5]);
    assert.deepEqual([expert.limit, layers[0]?.always?.glu.limit, expert.intermediateSize], [1.5, 1.5, 20]);
    assert.deepEqual(streams, { kind: 'mixed', count: 4, epsilon: Math.fround(1e-6), rounds: 20 });
    const kinds = ['hash_moe', 'hash_moe', 'moe', 'moe', 'moe'];
    const named = shapeOf(KEY, { num_hash_layers: null, mlp_layer_types: kinds });
    assert.deepEqual(
      named.layers.map(({ routed }) => routed?.byToken === true),
      [true, true, false, false, false],
    );
    refuses(KEY, { mlp_layer_types: kinds }, 'MODEL_CORRUPT', /mlp_layer_types says hash_moe for layer 1/);
    refuses(KEY, { scoring_func: 'sigmoid' }, 'MODEL_UNSUPPORTED', /scoring_func is "sigmoid"/);
    refuses(KEY, { norm_topk_prob: false }, 'MODEL_UNSUPPORTED', /norm_topk_prob is false/);
    refuses(KEY, { hc_mult: 1 }, 'MODEL_UNSUPPORTED', /hc_mult is 1, supported is 2 to 8/);
  });
});
