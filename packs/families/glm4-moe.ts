import {
  modelConfig,
  readAttention,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { draftHeadBehindLast } from '../model-config/draft-heads.js';
import { readGuessingLayers, readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { readRope } from '../model-config/rope-config.js';
import { readBiasedRouter } from '../model-config/biased-router.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** GLM-4.5 and GLM-4.5-Air: only a part of each head is rotated; sigmoid router with a bias for the choice. */
export const glm4Moe: ModelFamily = {
  name: 'glm4_moe',
  architectures: ['Glm4MoeForCausalLM'],
  readConfig(config) {
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const bias = config.flagOr(false, 'attention_bias');
    const queryKeyNorm = config.flagOr(false, 'use_qk_norm') ? 'head' : 'none';
    const mixer = readAttention(config, { normEpsilon, bias, queryKeyNorm }, { keyValueHeads: 8 });
    const routed = readBiasedRouter(config);
    const shared = config.countOr(1, 'n_shared_experts');
    const shape = readDecoder(config, {
      normEpsilon,
      ropes: [readRope(config, { theta: 10_000, headDim: mixer.headDim, partialFactor: 0.5 })],
      layers: readSharedOrDense(config, readSparseBehindDense(config, 1), { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, ...alwaysNames('mlp', 'mlp.shared_experts') },
      guessingLayers: readGuessingLayers(config),
    };
    const forms = expertForms(names, 'mlp.experts');
    return modelConfig(config, shape, forms, { eos: null, draftHead: draftHeadBehindLast(shape, forms) });
  },
};
