import { readBiasedRouter } from '../model-config/biased-router.js';
import {
  modelConfig,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
} from '../model-config/decoder-config.js';
import { latentNames, readLatentAttention } from '../model-config/latent-attention.js';
import { draftHeadBehindLast } from '../model-config/draft-heads.js';
import { readGuessingLayers, readListedOrBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** GLM-4.7-Flash: DeepSeek's latent attention with GLM-4.5's router. */
export const glm4MoeLite: ModelFamily = {
  name: 'glm4_moe_lite',
  architectures: ['Glm4MoeLiteForCausalLM'],
  readConfig(config) {
    const { mixer, rope } = readLatentAttention(config, 768);
    const routed = readBiasedRouter(config, {}, { groups: 1, groupsKept: 1, scale: 1.8 });
    const shared = config.countOr(1, 'n_shared_experts');
    const shape = readDecoder(config, {
      normEpsilon: readNormEpsilon(config, 1e-5),
      ropes: [rope],
      layers: readSharedOrDense(config, readListedOrBehindDense(config, 1), { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, ...latentNames(mixer), ...alwaysNames('mlp', 'mlp.shared_experts') },
      guessingLayers: readGuessingLayers(config),
    };
    const forms = expertForms(names, 'mlp.experts');
    return modelConfig(config, shape, forms, { eos: 1, draftHead: draftHeadBehindLast(shape, forms) });
  },
};
