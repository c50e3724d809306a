import { readBiasedRouter } from '../model-config/biased-router.js';
import { layerOf, modelConfig, readAttention, readDecoder, readSwiglu } from '../model-config/decoder-config.js';
import { forLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, expertNames, NUMBERED } from '../model-config/tensor-names.js';

/** Keys of factors for the inputs and outputs of a block. */
const RESIDUAL_SCALES = ['linear_attention', 'full_attention', 'mlp'].flatMap((block) =>
  ['alpha', 'beta'].map((scale) => `layernorm_${block}_${scale}`),
);

/** MiniMax-M2: query and key norms over all heads at once, a sigmoid router with a bias for the choice. */
export const minimaxM2: ModelFamily = {
  name: 'minimax_m2',
  architectures: ['MiniMaxM2ForCausalLM'],
  explained: {
    shared_moe_mode: { why: 'no part is shared, as shared_intermediate_size is 0' },
    ...Object.fromEntries(RESIDUAL_SCALES.map((key) => [key, { why: 'this value changes nothing', only: [1] }])),
  },
  readConfig(config) {
    config.only('qk_norm_type', ['per_layer'], 'per_layer');
    config.only('shared_intermediate_size', [0], 0);
    const types = config.numbersOr(null, 'attn_type_list');
    if (types !== null && types.length !== forLayers(config, (layer) => layer).length) {
      throw config.corrupt(`attn_type_list has ${types.length} entries, which is not num_hidden_layers`);
    }
    const linear = (types ?? []).find((type) => type !== 1);
    if (linear !== undefined) throw config.unsupported('attn_type_list', linear, '1 for every layer');
    const window = config.countOr(0, 'sliding_window');
    const queryKeyNorm = config.flagOr(true, 'use_qk_norm') ? 'all' : 'none';
    const mixer = readAttention(config, { window, queryKeyNorm }, { keyValueHeads: 8, headDim: 128 });
    config.only('norm_topk_prob', [true], true);
    const choiceBias = config.flagOr(true, 'use_routing_bias');
    const layer = layerOf(mixer, { routed: readBiasedRouter(config, { choiceBias, normalize: true, sumEpsilon: 0 }) });
    const rotaryDim = config.sizeOr(null, 'rotary_dim');
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 5e6, headDim: mixer.headDim, rotaryDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        router: 'block_sparse_moe.gate.weight',
        choiceBias: 'block_sparse_moe.e_score_correction_bias',
      },
      expert: expertNames('block_sparse_moe.experts', NUMBERED),
      leftOut: [/^model\.mtp/],
    };
    return modelConfig(config, shape, names, { eos: 200_020 });
  },
};
