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
import { DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** OLMoE: query and key norms over all heads at once, and values that may be clipped. */
export const olmoe: ModelFamily = {
  name: 'olmoe',
  architectures: ['OlmoeForCausalLM'],
  explained: { use_qk_norm: { why: 'it is what is computed', only: [true] } },
  readConfig(config) {
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const bias = config.flagOr(false, 'attention_bias');
    const clip = Math.fround(config.positiveOr(null, 'clip_qkv') ?? 0);
    const mixer = readAttention(config, { bias, outputBias: bias, queryKeyNorm: 'all', clip, normEpsilon });
    const layer = layerOf(mixer, { routed: routerOf({ normalize: config.flagOr(false, 'norm_topk_prob') }) });
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim })],
      layers: forLayers(config, () => layer),
      expert: readSwiglu(config, ['intermediate_size']),
    });
    return modelConfig(config, shape, expertForms(DECODER_NAMES, 'mlp.experts'), { eos: 50_279 });
  },
};
