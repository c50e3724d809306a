import assert from 'node:assert/strict';
import { denseDimensions, type DenseRole } from '../../shared/model/dense-roles.js';
import { expertMatrixValues, gateRows } from '../../shared/model/model-shape.js';
import { attentionOf, type Config, configOf, refuses, shapeOf } from './fixture-config.js';

describe('the config.json of a family with state spaces or delta nets', () => {
  it('reads Granite-4: kinds of layers, rotation only where the file says so, sizes of state spaces', () => {
    const { layers, ropes } = shapeOf('granitemoehybrid', { layer_types: null, mamba_conv_bias: false });
    const [mixer] = layers.map((layer) => layer.mixer);
    assert.ok(mixer?.kind === 'state-space' && layers.every((layer) => layer.mixer.kind === 'state-space'));
    const { heads, groups, headDim, stateSize, taps, convolutionBias, normGroups } = mixer;
    assert.deepEqual([heads, groups, headDim, stateSize, taps, convolutionBias], [12, 1, 8, 16, 4, false]);
    assert.deepEqual([normGroups, ropes.length], [1, 0]);
    assert.equal(attentionOf(shapeOf('granitemoehybrid'), 2).rotary, null);
    const rotated = shapeOf('granitemoehybrid', { position_embedding_type: 'rope', mamba_d_head: 'auto' });
    assert.deepEqual([attentionOf(rotated, 2).rotary?.pairing, rotated.ropes.length], ['halves', 1]);
    const key = 'granitemoehybrid';
    assert.equal(shapeOf(key, { mamba_n_groups: 4, shared_intermediate_size: 0 }).layers[0]?.always, null);
    refuses(key, { mamba_n_groups: 5 }, 'MODEL_CORRUPT', /mamba_n_heads 12 is not a multiple of mamba_n_groups 5/);
    refuses(key, { mamba_d_head: 9 }, 'MODEL_CORRUPT', /mamba_d_head times mamba_n_heads 12/);
    refuses(key, { mamba_proj_bias: true }, 'MODEL_UNSUPPORTED', /mamba_proj_bias is true/);
    refuses(key, { time_step_limit: [0, 1] }, 'MODEL_UNSUPPORTED', /time_step_limit is \[0,1\]/);
    refuses(key, { num_local_experts: 0 }, 'MODEL_UNSUPPORTED', /no layer of the model has experts.*dense ones/);
  });

  it('reads Nemotron-H: pairs of a mixer and a network, and what it cannot run', () => {
    const shape = shapeOf('nemotronh', { hybrid_override_pattern: 'M*-MEM*E', num_hidden_layers: 8 });
    assert.deepEqual(
      shape.layers.map(({ mixer, always, routed }) => [mixer.kind, always?.glu.intermediateSize ?? 0, routed !== null]),
      [
        ['state-space', 0, false],
        ['attention', 60, false],
        ['state-space', 40, true],
        ['state-space', 0, false],
        ['attention', 40, true],
      ],
    );
    const [first] = shape.layers;
    assert.ok(first?.mixer.kind === 'state-space');
    assert.deepEqual([first.mixer.groups, first.mixer.normGroups, first.mixer.headDim], [2, 2, 8]);
    assert.deepEqual([shape.expert.activation, gateRows(shape.expert)], ['relu-squared', 14]);
    const words = ['mamba', 'moe', 'attention', 'mlp'];
    const named = { hybrid_override_pattern: null, layers_block_type: words, num_hidden_layers: 4 };
    assert.equal(shapeOf('nemotronh', named).layers.length, 2);
    const key = 'nemotronh';
    refuses(key, { layers_block_type: words }, 'MODEL_CORRUPT', /hybrid_override_pattern and layers_block_type/);
    refuses(key, { hybrid_override_pattern: 'EM*EMEM' }, 'MODEL_UNSUPPORTED', /moe in layer 0.*right behind a mixer/);
    refuses(key, { hybrid_override_pattern: 'MEE*EME' }, 'MODEL_UNSUPPORTED', /moe in layer 2/);
    refuses(key, { hybrid_override_pattern: 'MEX*EME' }, 'MODEL_UNSUPPORTED', /hybrid_override_pattern is "X"/);
    refuses(key, { num_hidden_layers: 6 }, 'MODEL_CORRUPT', /pattern says 7 layers, and num_hidden_layers is 6/);
    refuses(key, { conv_kernel: 65 }, 'MODEL_UNSUPPORTED', /conv_kernel is 65, supported is at most 64/);
    const latent = shapeOf(key, { moe_latent_size: 16 });
    assert.deepEqual([latent.expertHiddenSize, shape.expertHiddenSize], [16, undefined]);
    const expert = latent.layers.findIndex(({ routed }) => routed !== null);
    const sizeOf = (role: DenseRole): unknown => denseDimensions({ role, layer: expert }, latent);
    assert.deepEqual(sizeOf('expertInput'), { rows: 16, columns: latent.hiddenSize });
    assert.deepEqual(sizeOf('expertOutput'), { rows: latent.hiddenSize, columns: 16 });
    assert.deepEqual(sizeOf('router'), { rows: latent.experts, columns: latent.hiddenSize });
    assert.equal(expertMatrixValues(latent) * latent.hiddenSize, expertMatrixValues(shape) * 16);
    refuses(
      key,
      { moe_intermediate_size: 27 },
      'MODEL_UNSUPPORTED',
      /moe_intermediate_size is 27, supported is an even number/,
    );
    refuses(key, { mlp_hidden_act: 'silu' }, 'MODEL_UNSUPPORTED', /mlp_hidden_act is "silu"/);
    refuses(key, { n_groups: 3 }, 'MODEL_CORRUPT', /mamba_num_heads 8 is not a multiple of n_groups 3/);
  });

  it('reads Kimi-Linear: which layers have which attention, by lists that count from 1 or by layer_types', () => {
    const key = 'kimilinear';
    const { layers, ropes, maxPositions } = shapeOf(key);
    assert.deepEqual([ropes.length, maxPositions], [0, 512]);
    const [delta, , , latent] = layers.map(({ mixer }) => mixer);
    assert.ok(delta?.kind === 'delta' && latent?.kind === 'latent');
    assert.deepEqual([delta.keyHeads, delta.valueHeads, delta.keyDim, delta.valueDim, delta.taps], [4, 4, 12, 12, 4]);
    const wide = {
      linear_attn_config: { ...(configOf('kimilinear')['linear_attn_config'] as object), short_conv_kernel_size: 65 },
    };
    refuses(
      'kimilinear',
      wide,
      'MODEL_UNSUPPORTED',
      /linear_attn_config\.short_conv_kernel_size is 65, supported is at most 64/,
    );
    const { decayWidth, lowRank, gateFunction, separateConvolutions, decayFloor } = delta;
    assert.deepEqual(
      [decayWidth, lowRank, gateFunction, separateConvolutions, decayFloor],
      ['channel', 12, 'sigmoid', true, undefined],
    );
    assert.deepEqual([latent.rotary, latent.queryRank, latent.latentSize], [null, 0, 24]);
    const own = configOf(key).linear_attn_config as Config;
    const linear = (changes: Config): Config => ({ linear_attn_config: { ...own, ...changes } });
    const kinds = ['linear', 'linear', 'full', 'linear', 'linear', 'linear'].map((kind) => `${kind}_attention`);
    const listed = shapeOf(key, {
      ...linear({ full_attn_layers: null, kda_layers: null }),
      layer_types: kinds,
      num_experts_per_token: null,
      num_experts_per_tok: 2,
    });
    assert.deepEqual(
      listed.layers.map(({ mixer }) => `${mixer.kind === 'delta' ? 'linear' : 'full'}_attention`),
      kinds,
    );
    refuses(key, { layer_types: kinds }, 'MODEL_CORRUPT', /layer_types says full_attention for layer 2/);
    for (const full of [[4], [4, 5, 6], [0, 6], [4, 7], [4, 4.5]]) {
      refuses(key, linear({ full_attn_layers: full }), 'MODEL_CORRUPT', /do not name each of the 6 layers once/);
    }
    refuses(key, linear({ kda_layers: null }), 'MODEL_CORRUPT', /do not name each of the 6 layers once/);
    refuses(key, linear({ other: 1 }), 'MODEL_UNSUPPORTED', /linear_attn_config.other is 1/);
    refuses(key, { linear_head_dim: 16 }, 'MODEL_UNSUPPORTED', /linear_head_dim is 16/);
    refuses(key, { q_lora_rank: 8 }, 'MODEL_UNSUPPORTED', /q_lora_rank is 8/);
    refuses(key, { mla_use_nope: false }, 'MODEL_UNSUPPORTED', /mla_use_nope is false/);
    assert.equal(shapeOf(key, { use_grouped_topk: true, num_expert_group: 2 }).layers[1]?.routed?.groups, 2);
    refuses(key, { use_grouped_topk: false, num_expert_group: 2 }, 'MODEL_UNSUPPORTED', /use_grouped_topk is false/);
  });
});
