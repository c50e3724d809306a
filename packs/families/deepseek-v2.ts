import { modelConfig, readDecoder, readSharedOrDense, readSwiglu, routerOf } from '../model-config/decoder-config.js';
import { latentNames, readLatentAttention } from '../model-config/latent-attention.js';
import { readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { alwaysNames, DECODER_NAMES, expertForms } from '../model-config/tensor-names.js';

/** DeepSeek-V2 and V2-Lite: latent attention; softmax scores that are never renormalized; router groups are scored by their best expert. */
export const deepseekV2: ModelFamily = {
  name: 'deepseek_v2',
  architectures: ['DeepseekV2ForCausalLM'],
  readConfig(config) {
    config.only('mlp_bias', [false], false);
    config.only('scoring_func', ['softmax'], 'softmax');
    config.only('norm_topk_prob', [false], false);
    const { mixer, rope } = readLatentAttention(config, 1536);
    const grouped = config.only('topk_method', ['greedy', 'group_limited_greedy'], 'greedy') !== 'greedy';
    if (!grouped) config.idle('n_group', 'topk_group');
    const groups = grouped ? config.size('n_group') : 1;
    const routed = routerOf({
      groups,
      groupsKept: grouped ? config.size('topk_group') : 1,
      scale: Math.fround(config.numberOr(1, 'routed_scaling_factor')),
    });
    const shared = config.countOr(2, 'n_shared_experts');
    const shape = readDecoder(config, {
      ropes: [rope],
      layers: readSharedOrDense(config, readSparseBehindDense(config), { mixer, routed, shared }),
      expert: readSwiglu(config, ['moe_intermediate_size']),
    });
    const names = {
      ...DECODER_NAMES,
      layer: { ...DECODER_NAMES.layer, ...latentNames(mixer), ...alwaysNames('mlp', 'mlp.shared_experts') },
    };
    return modelConfig(config, shape, expertForms(names, 'mlp.experts'), { eos: 2 });
  },
};
