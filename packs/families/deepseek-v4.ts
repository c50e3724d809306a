import type { ConfigReader } from '../model-config/config-reader.js';
import { layerOf, modelConfig, readAlways, readDecoder, readSwiglu, routerOf } from '../model-config/decoder-config.js';
import { readLayerKinds } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { POOLED_NAMES, readPooledAttention } from '../model-config/pooled-attention.js';
import type { TensorNames } from '../model-config/checkpoint-layout.js';
import { alwaysNames, expertNames, NUMBERED } from '../model-config/tensor-names.js';
import type { GluShape, LayerShape, RouterShape } from '../../shared/model/model-shape.js';

/** DeepSeek-V4: residual streams, attention to pools of positions, and first layers that choose experts by the token. */
export const deepseekV4: ModelFamily = {
  name: 'deepseek_v4',
  architectures: ['DeepseekV4ForCausalLM'],
  readConfig(config) {
    config.only('mlp_bias', [false], false);
    // The form of the experts is seen by their tensors.
    config.idle('expert_dtype');
    config.only('topk_method', ['noaux_tc'], 'noaux_tc');
    config.only('norm_topk_prob', [true], true);
    const guessing = config.countOr(1, 'num_nextn_predict_layers');
    const { mixers, ropes } = readPooledAttention(config, guessing);
    const limit = Math.fround(config.positiveOr(10, 'swiglu_limit'));
    const limited = (glu: GluShape): GluShape => ({ ...glu, limit });
    const shared = readAlways(config, 'moe_intermediate_size', config.countOr(1, 'n_shared_experts'));
    const always: LayerShape['always'] = shared && { ...shared, glu: limited(shared.glu) };
    const routers = readRouters(config);
    const shape = readDecoder(config, {
      ropes,
      layers: mixers.map((mixer, layer) => layerOf(mixer, { routed: routers[layer] ?? null, always })),
      expert: limited(readSwiglu(config, ['moe_intermediate_size'])),
      streams: {
        kind: 'mixed',
        count: config.sizeOr(4, 'hc_mult'),
        epsilon: Math.fround(config.positiveOr(1e-6, 'hc_eps')),
        rounds: config.sizeOr(20, 'hc_sinkhorn_iters'),
      },
    });
    return modelConfig(config, shape, NAMES, { eos: 1 });
  },
};

/** The first layers choose by token. */
function readRouters(config: ConfigReader): RouterShape[] {
  const key = 'num_hash_layers';
  config.only('scoring_func', ['sqrtsoftplus'], 'sqrtsoftplus');
  const byToken = config.countOr(3, key);
  const kinds = readLayerKinds(config, ['hash_moe', 'moe'], (layer) => (layer < byToken ? 'hash_moe' : 'moe'), {
    list: 'mlp_layer_types',
    rule: [key],
  });
  const router = routerOf({
    score: 'sqrt-softplus',
    choiceBias: true,
    normalize: true,
    sumEpsilon: Math.fround(1e-20),
    scale: Math.fround(config.positiveOr(1.5, 'routed_scaling_factor')),
  });
  return kinds.map((kind) => (kind === 'moe' ? router : { ...router, choiceBias: false, byToken: true }));
}

const NAMES = {
  prefix: '',
  model: {
    embedding: 'embed.weight',
    finalNorm: 'norm.weight',
    lmHead: 'head.weight',
    finalStreamMap: 'hc_head_fn',
    finalStreamScale: 'hc_head_scale',
    finalStreamBase: 'hc_head_base',
  },
  layer: {
    ...POOLED_NAMES,
    ...alwaysNames('ffn.shared_experts', 'ffn.shared_experts', NUMBERED),
    mixerNorm: 'attn_norm.weight',
    feedForwardNorm: 'ffn_norm.weight',
    router: 'ffn.gate.weight',
    choiceBias: 'ffn.gate.bias',
    tokenExperts: ({ shape: { vocabSize, expertsPerToken } }) => ({
      name: 'ffn.gate.tid2eid',
      dimensions: [vocabSize, expertsPerToken],
      encoding: 'integers',
    }),
    mixerStreamMap: 'hc_attn_fn',
    mixerStreamScale: 'hc_attn_scale',
    mixerStreamBase: 'hc_attn_base',
    feedForwardStreamMap: 'hc_ffn_fn',
    feedForwardStreamScale: 'hc_ffn_scale',
    feedForwardStreamBase: 'hc_ffn_base',
  },
  expert: expertNames('ffn.experts', NUMBERED),
  // A layer that guesses tokens, in names of its own.
  leftOut: [/^mtp\./],
} satisfies TensorNames;
