import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { forLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, expertNames, NUMBERED } from '../model-config/tensor-names.js';

/** Phi-3.5-MoE: LayerNorm, biases, and a router that chooses two experts one after the other. */
export const phimoe: ModelFamily = {
  name: 'phimoe',
  architectures: ['PhimoeForCausalLM', 'PhiMoEForCausalLM'],
  readConfig(config) {
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const bias = config.flagOr(false, 'attention_bias');
    const window = config.countOr(0, 'sliding_window');
    const own = { bias, outputBias: bias, window, normEpsilon };
    const mixer = readAttention(config, own, { keyValueHeads: 8 });
    config.only('norm_topk_prob', [false], false);
    const jitter = Math.fround(config.numberOr(0.01, 'router_jitter_noise'));
    const layer = layerOf(mixer, { routed: routerOf({ score: 'sparsemixer', jitter }) });
    const shape = readDecoder(config, {
      norm: 'layer',
      normEpsilon,
      lmHeadBias: config.flagOr(false, 'lm_head_bias'),
      ropes: [readRope(config, { theta: 1e6, headDim: mixer.headDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      model: { ...DECODER_NAMES.model, finalNormBias: 'norm.bias', lmHeadBias: 'lm_head.bias' },
      layer: {
        ...DECODER_NAMES.layer,
        mixerNormBias: 'input_layernorm.bias',
        feedForwardNormBias: 'post_attention_layernorm.bias',
        router: 'block_sparse_moe.gate.weight',
      },
      expert: expertNames('block_sparse_moe.experts', NUMBERED),
    };
    return modelConfig(config, shape, names, { eos: 2 });
  },
};
