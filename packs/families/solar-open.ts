import { readBiasedRouter } from '../model-config/biased-router.js';
import {
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** Solar-Open: attention without norms, DeepSeek-V3's router, a shared expert in every layer. */
export const solarOpen: ModelFamily = {
  name: 'solar_open',
  architectures: ['SolarOpenForCausalLM'],
  readConfig(config) {
    config.only('use_qk_norm', [false], false);
    const bias = config.flagOr(false, 'attention_bias');
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const mixer = readAttention(config, { bias, outputBias: bias, normEpsilon }, { keyValueHeads: 8, headDim: 128 });
    const routed = readBiasedRouter(config);
    const shared = config.countOr(1, 'n_shared_experts');
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 1_000_000, headDim: mixer.headDim })],
      layers: readSharedOrDense(config, readSparseBehindDense(config), { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, ...alwaysNames('mlp', 'mlp.shared_experts') },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: null });
  },
};
