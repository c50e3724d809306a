import assert from 'node:assert/strict';
import type { LatentMixer } from '../../shared/model/model-shape.js';
import { type Config, configOf, read, refuses, shapeOf } from './fixture-config.js';

const KEY = 'hyv4';

function mixersOf(changes: Config = {}): LatentMixer[] {
  return shapeOf(KEY, changes).layers.map(({ mixer }) => {
    assert.ok(mixer.kind === 'latent');
    return mixer;
  });
}

const sharing = (changes: Config): boolean[] => mixersOf(changes).map((mixer) => mixer.sharesIndexer === true);

describe('the config.json of HY4', () => {
  it('gives latent attention with halves that rotate, sinks and gates', () => {
    for (const { sinks, outputGate, rotary, normEpsilon } of mixersOf()) {
      assert.deepEqual([sinks, outputGate, normEpsilon], [true, true, Math.fround(1e-6)]);
      assert.deepEqual(rotary, { rope: 0, pairing: 'halves', offset: 0 });
    }
    refuses(KEY, { rope_interleave: true }, 'MODEL_UNSUPPORTED', /rope_interleave is true/);
    refuses(KEY, { attention_bias: true }, 'MODEL_UNSUPPORTED', /attention_bias is true/);
  });

  it("rotates the last dimensions of an indexer, whose norm has the model's epsilon", () => {
    assert.deepEqual(mixersOf()[0]?.indexer, {
      heads: 16,
      headDim: 16,
      positions: 12,
      normEpsilon: Math.fround(1e-5),
      rotary: { rope: 0, pairing: 'halves', offset: 8 },
    });
    assert.equal(mixersOf({ rms_norm_eps: 1e-4 })[0]?.indexer?.normEpsilon, Math.fround(1e-4));
    refuses(KEY, { index_head_dim: 6 }, 'MODEL_CORRUPT', /qk_rope_head_dim 8 is more than index_head_dim 6/);
  });

  it('shares indexers by a list, or has them in the first layer and every fourth from the second on', () => {
    assert.deepEqual(sharing({}), [false, false, true, true, false]);
    assert.deepEqual(sharing({ indexer_types: null }), [false, false, true, true, true]);
    const [types] = [configOf(KEY).indexer_types as string[]];
    refuses(KEY, { indexer_types: types.slice(1) }, 'MODEL_CORRUPT', /indexer_types has 4 entries/);
    refuses(KEY, { indexer_types: ['shared', ...types.slice(1)] }, 'MODEL_CORRUPT', /layer 0: it shares an indexer/);
    refuses(KEY, { indexer_types: ['half', ...types.slice(1)] }, 'MODEL_UNSUPPORTED', /indexer_types is "half"/);
  });

  it('adds to its streams, and limits its experts alone', () => {
    const { streams, expert, layers } = shapeOf(KEY);
    assert.deepEqual(streams, { kind: 'added', count: 4, epsilon: Math.fround(1e-6), magnitude: 2 });
    assert.deepEqual([expert.limit, expert.intermediateSize], [2, 20]);
    assert.deepEqual(
      layers.map(({ always, routed }) => [always?.glu.intermediateSize, always?.glu.limit, routed?.choiceBias]),
      [[60, 0, undefined], ...Array.from({ length: 4 }, () => [20, 0, true])],
    );
    assert.equal(shapeOf(KEY, { swiglu_limit: -1 }).expert.limit, 0);
    const changed = shapeOf(KEY, { hc_magnitude: 1.5, hc_mult: 3 }).streams;
    assert.deepEqual(changed, { kind: 'added', count: 3, epsilon: Math.fround(1e-6), magnitude: 1.5 });
    refuses(KEY, { hc_mult: 1 }, 'MODEL_UNSUPPORTED', /hc_mult is 1, supported is 2 to 8/);
    refuses(KEY, { hc_magnitude: 0 }, 'MODEL_CORRUPT', /hc_magnitude/);
  });

  it('has the keys of Hy4-preview as it is published, and leaves its guessing layer out', () => {
    const published = {
      layer_types: Array.from({ length: 5 }, () => 'deepseek_sparse_attention'),
      enable_ihc: true,
      enable_lm_head_fp32: true,
      gated_mla: true,
      gating_type: 'elementwise',
      learnable_sink: true,
      mtp_loss_factor: 0.1,
    };
    assert.deepEqual(shapeOf(KEY, published), shapeOf(KEY));
    for (const key of ['enable_ihc', 'gated_mla', 'learnable_sink']) {
      refuses(KEY, { [key]: false }, 'MODEL_UNSUPPORTED', new RegExp(`${key} is false`));
    }
    refuses(KEY, { gating_type: 'headwise' }, 'MODEL_UNSUPPORTED', /gating_type is "headwise"/);
    const { layout } = read(KEY);
    assert.ok(layout.isLeftOut('model.mtp_layers.0.eh_proj.weight'));
    assert.ok(!layout.isLeftOut('model.layers.0.self_attn.q_a_proj.weight'));
  });
});
