import { readBiasedRouter } from '../model-config/biased-router.js';
import { modelConfig, readDecoder, readSharedOrDense, readSwiglu } from '../model-config/decoder-config.js';
import { latentNames, readLatentAttention } from '../model-config/latent-attention.js';
import { draftHeadBehindLast } from '../model-config/draft-heads.js';
import { readGuessingLayers, readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

const VISION = 'it belongs to the part for images';

/** DeepSeek-V3 and R1: latent attention, a sigmoid router with a bias for the choice, FP8 weights as shipped. */
export const deepseekV3: ModelFamily = {
  name: 'deepseek_v3',
  // transformers writes the last one, published files have the second one.
  architectures: ['DeepseekV3ForCausalLM', 'KimiK25ForConditionalGeneration', 'Kimi_K25ForConditionalGeneration'],
  explained: {
    projection_hidden_size: { why: VISION },
    projection_layer_norm_eps: { why: VISION },
    use_unified_vision_chunk: { why: VISION },
  },
  readConfig(whole) {
    // Kimi K2.5 has its text model in a part of its own, beside one for images.
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    const before = text === null ? '' : 'language_model.';
    const { mixer, rope } = readLatentAttention(config, 1536);
    const routed = readBiasedRouter(config, {}, { groups: 8, groupsKept: 4, scale: 2.5 });
    const shared = config.countOr(1, 'n_shared_experts');
    const shape = readDecoder(config, {
      ropes: [rope],
      layers: readSharedOrDense(config, readSparseBehindDense(config, 3), { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      prefix: `${before}${DECODER_NAMES.prefix}`,
      model: { ...DECODER_NAMES.model, lmHead: `${before}${DECODER_NAMES.model.lmHead}` },
      layer: { ...DECODER_NAMES.layer, ...latentNames(mixer), ...alwaysNames('mlp', 'mlp.shared_experts') },
      guessingLayers: readGuessingLayers(config),
      leftOut: text === null ? [] : [/^(vision_tower|mm_projector)\./],
    };
    const forms = expertForms(names, 'mlp.experts');
    return modelConfig(config, shape, forms, { eos: 1, draftHead: draftHeadBehindLast(shape, forms) });
  },
};
