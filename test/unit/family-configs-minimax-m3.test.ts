import assert from 'node:assert/strict';
import { attentionOf, type Config, configOf, refuses, shapeOf, sparseLayers, withoutKeys } from './fixture-config.js';

const text = configOf('minimaxm3').text_config as Config;
const sparse = text.sparse_attention_config as Config;

const changed = (changes: Config): Config => ({ text_config: { ...text, ...changes } });
const changedSparse = (changes: Config): Config => changed({ sparse_attention_config: { ...sparse, ...changes } });

describe('the config.json of MiniMax-M3', () => {
  it('says which layers choose blocks, and which are dense', () => {
    const shape = shapeOf('minimaxm3');
    assert.deepEqual(
      shape.layers.map((_, layer) => attentionOf(shape, layer).blockIndexer !== undefined),
      [false, true, true, false, true],
    );
    assert.deepEqual(sparseLayers(shape), [1, 2, 3, 4]);
    assert.deepEqual(attentionOf(shape, 1).blockIndexer, {
      headDim: 16,
      blockSize: 8,
      blocks: 4,
      localBlocks: 1,
      normEpsilon: Math.fround(1e-6),
      rotary: { rope: 0, pairing: 'halves', offset: 0 },
    });
    const [dense, first] = shape.layers.map(({ always }) => always?.glu.intermediateSize);
    assert.deepEqual([dense, first, shape.expert.intermediateSize], [60, 28, 20]);
    for (const glu of [shape.expert, ...shape.layers.flatMap(({ always }) => always?.glu ?? [])]) {
      assert.deepEqual([glu.alpha, glu.limit, glu.upOffset], [Math.fround(1.702), 7, 1]);
    }
  });

  it('has the keys of transformers 5.18 or the older ones, which must agree', () => {
    const shape = shapeOf('minimaxm3');
    const newer = {
      ...withoutKeys(text, 'sparse_attention_config', 'moe_layer_freq', 'n_shared_experts', 'use_gemma_norm'),
      hidden_act: 'silu',
      index_n_heads: 2,
      index_head_dim: 16,
      index_block_size: 8,
      index_topk_blocks: 4,
      index_local_blocks: 1,
      layer_types: [0, 1, 1, 0, 1].map((own) => (own === 1 ? 'minimax_m3_sparse' : 'full_attention')),
      mlp_layer_types: ['dense', 'sparse', 'sparse', 'sparse', 'sparse'],
    };
    assert.deepEqual(shapeOf('minimaxm3', { text_config: newer }), shape);
    refuses('minimaxm3', changed({ index_topk_blocks: 5 }), 'MODEL_CORRUPT', /index_topk_blocks/);
    const layer_types = Array.from({ length: 5 }, () => 'full_attention');
    refuses('minimaxm3', changed({ layer_types }), 'MODEL_CORRUPT', /layer_types says full_attention for layer 1/);
    const none = shapeOf('minimaxm3', { text_config: { ...withoutKeys(newer, 'index_head_dim'), layer_types } });
    assert.ok(none.layers.every((_, layer) => attentionOf(none, layer).blockIndexer === undefined));
  });

  it('is refused where something else is chosen than blocks by their greatest score', () => {
    const refusesSparse = (changes: Config, message: RegExp): void => {
      refuses('minimaxm3', changedSparse(changes), 'MODEL_UNSUPPORTED', message);
    };
    refusesSparse({ sparse_init_block: 1 }, /sparse_init_block is 1/);
    refusesSparse({ sparse_score_type: 'softmax' }, /sparse_score_type is "softmax"/);
    refusesSparse({ sparse_disable_index_value: [0, 1, 0, 0, 1] }, /1 for layer 2, which has an indexer/);
    refusesSparse({ use_sparse_attention: false }, /use_sparse_attention is false/);
    refusesSparse(
      { sparse_num_index_heads: 4 },
      /sparse_attention_config\.sparse_num_index_heads is 4, supported is the 2 key-value heads/,
    );
    refuses(
      'minimaxm3',
      changedSparse({ sparse_local_block: 5 }),
      'MODEL_CORRUPT',
      /the last 5 blocks cannot be among 4/,
    );
    refuses('minimaxm3', changed({ use_gemma_norm: false }), 'MODEL_UNSUPPORTED', /use_gemma_norm is false/);
    refuses('minimaxm3', changed({ n_shared_experts: 2 }), 'MODEL_UNSUPPORTED', /n_shared_experts is 2/);
  });
});
