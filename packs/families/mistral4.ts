import type { ConfigReader } from '../model-config/config-reader.js';
import { modelConfig, readDecoder, readSharedOrDense, readSwiglu, routerOf } from '../model-config/decoder-config.js';
import { latentNames, readLatentAttention } from '../model-config/latent-attention.js';
import { readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';
import type { ModelShape } from '../../shared/model/model-shape.js';

/** Mistral 4, and the text of its form with images: latent attention with queries scaled by position, a softmax router in groups. */
export const mistral4: ModelFamily = {
  name: 'mistral4',
  architectures: ['Mistral3ForConditionalGeneration', 'Mistral4ForCausalLM'],
  explained: {
    multimodal_projector_bias: { why: 'it belongs to images' },
    projector_hidden_act: { why: 'it belongs to images' },
    spatial_merge_size: { why: 'it belongs to images' },
  },
  readConfig(whole) {
    const text = whole.within('text_config');
    const config = text === null ? whole : whole.picked('tie_word_embeddings', 'eos_token_id').beside(text);
    // Mistral 3, which is dense, has the same architecture around another text model.
    config.only('model_type', ['mistral4'], 'mistral4');
    const before = text === null ? '' : 'language_model.';
    const { mixer, rope } = readLatentAttention(config, 1024, { ofHeads: true, parameters: YARN });
    for (const key of ['n_group', 'topk_group', 'norm_topk_prob']) config.notNull(key);
    const routed = routerOf({
      groups: config.sizeOr(1, 'n_group'),
      groupsKept: config.sizeOr(1, 'topk_group'),
      groupScore: 'best-two',
      normalize: config.flagOr(true, 'norm_topk_prob'),
      sumEpsilon: Math.fround(1e-20),
      scale: Math.fround(config.numberOr(1, 'routed_scaling_factor')),
    });
    const shared = config.countOr(1, 'n_shared_experts');
    const shape = readDecoder(config, {
      ropes: [rope],
      layers: readSharedOrDense(config, readSparseBehindDense(config), { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
      ...readQueryScale(config),
    });
    const names = {
      ...DECODER_NAMES,
      prefix: `${before}${DECODER_NAMES.prefix}`,
      model: { ...DECODER_NAMES.model, lmHead: `${before}${DECODER_NAMES.model.lmHead}` },
      layer: { ...DECODER_NAMES.layer, ...latentNames(mixer), ...alwaysNames('mlp', 'mlp.shared_experts') },
      leftOut: text === null ? [] : [/^(vision_tower|multi_modal_projector)\./],
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts', 'fused'), { eos: 2 });
  },
};

/** Parameters of the rope if config.json has none. */
const YARN = {
  rope_type: 'yarn',
  rope_theta: 10_000,
  factor: 128,
  original_max_position_embeddings: 8192,
  beta_fast: 32,
  beta_slow: 1,
  mscale: 1,
  mscale_all_dim: 1,
  llama_4_scaling_beta: 0.1,
};

/** The scale of queries by position, whose numbers stand among the rope's. Both must be there, because no other value is known. */
function readQueryScale(config: ConfigReader): Pick<ModelShape, 'queryScale'> {
  const given = config.within('rope_parameters') ?? config.within('rope_scaling');
  const parameters = given ?? config.withFallbacks(YARN);
  given?.repeats('max_position_embeddings', config.size('max_position_embeddings'));
  const beta = parameters.numberOr(null, 'llama_4_scaling_beta');
  if (beta === null || beta < 0) {
    throw config.corrupt(`rope_parameters.llama_4_scaling_beta is ${String(beta)}, expected a number of at least 0`);
  }
  const length = parameters.size('original_max_position_embeddings');
  return beta === 0 ? {} : { queryScale: { beta: Math.fround(beta), length } };
}
