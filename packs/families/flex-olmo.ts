import {
  layerOf,
  modelConfig,
  readAttention,
  readDecoder,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { forLayers } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** FlexOlmo: norms behind attention and experts and none before, query and key norms of all heads at once. */
export const flexOlmo: ModelFamily = {
  name: 'flex_olmo',
  architectures: ['FlexOlmoForCausalLM'],
  readConfig(config) {
    const bias = config.flagOr(false, 'attention_bias');
    const mixer = readAttention(config, { bias, outputBias: bias, queryKeyNorm: 'all' });
    const routed = routerOf({ normalize: config.flagOr(false, 'norm_topk_prob') });
    const layer = layerOf(mixer, {
      inputNorms: false,
      routed,
      mixerOutputNorm: true,
      feedForwardOutputNorm: true,
    });
    const shape = readDecoder(config, {
      ropes: [readRope(config, { theta: 500_000, headDim: mixer.headDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        mixerOutputNorm: 'post_attention_layernorm.weight',
        feedForwardOutputNorm: 'post_feedforward_layernorm.weight',
      },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: 100_257 });
  },
};
