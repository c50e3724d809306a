import { readBiasedRouter } from '../biased-router.js';
import { layerOf, modelConfig, readAttention, readDecoder, readSwiglu } from '../decoder-config.js';
import { forLayers } from '../layer-kinds.js';
import type { ModelFamily } from '../model-family.js';
import { readRope } from '../rope-config.js';
import { DECODER_NAMES, expertNames, NUMBERED } from '../tensor-names.js';

/** MiniMax-M2: query and key norms over all heads at once, sigmoid router with a bias for the choice. */
export const minimaxM2: ModelFamily = {
  name: 'minimax_m2',
  architectures: ['MiniMaxM2ForCausalLM'],
  quantizations: ['fp8'],
  readConfig(config) {
    config.only('qk_norm_type', ['per_layer'], 'per_layer');
    config.only('shared_intermediate_size', [0], 0);
    const linear = config.numbersOr([], 'attn_type_list').find((type) => type !== 1);
    if (linear !== undefined) throw config.unsupported('attn_type_list', linear, '1 for every layer');
    const window = config.countOr(0, 'sliding_window');
    const mixer = readAttention(config, {
      window,
      queryKeyNorm: config.flagOr(true, 'use_qk_norm') ? 'all' : 'none',
    });
    const choiceBias = config.flagOr(true, 'use_routing_bias');
    const layer = layerOf(mixer, { routed: readBiasedRouter(config, { choiceBias, normalize: true, sumEpsilon: 0 }) });
    const rotaryDim = config.sizeOr(mixer.headDim, 'rotary_dim');
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 5e6, headDim: mixer.headDim, rotaryDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    return modelConfig(config, shape, {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        router: 'block_sparse_moe.gate.weight',
        choiceBias: 'block_sparse_moe.e_score_correction_bias',
      },
      expert: expertNames('block_sparse_moe.experts', NUMBERED),
      leftOut: [/^model\.mtp/],
    });
  },
};
