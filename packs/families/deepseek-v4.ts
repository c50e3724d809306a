import type { ConfigReader } from '../model-config/config-reader.js';
import { layerOf, modelConfig, readAlways, readDecoder, readSwiglu, routerOf } from '../model-config/decoder-config.js';
import { readLayerKinds } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { POOLED_NAMES, readPooledAttention } from '../model-config/pooled-attention.js';
import { MIXED_STREAM_NAMES, readMixedStreams } from '../model-config/residual-streams.js';
import type { TensorNames } from '../model-config/checkpoint-layout.js';
import { alwaysNames, expertNames, NUMBERED } from '../model-config/tensor-names.js';
import type { GluShape, LayerShape, RouterShape } from '../../shared/model/model-shape.js';

const GUESSING = 'it is of layers that only guess tokens ahead, which are left out';

/** DeepSeek-V4: residual streams, attention to pools of positions, and first layers that choose experts by the token. */
export const deepseekV4: ModelFamily = {
  name: 'deepseek_v4',
  architectures: ['DeepseekV4ForCausalLM'],
  explained: {
    dspark_block_size: { why: GUESSING },
    dspark_markov_rank: { why: GUESSING },
    dspark_noise_token_id: { why: GUESSING },
    dspark_target_layer_ids: { why: GUESSING },
  },
  readConfig(config) {
    config.only('mlp_bias', [false], false);
    // The form of the experts is seen by their tensors.
    config.idle('expert_dtype');
    config.only('topk_method', ['noaux_tc'], 'noaux_tc');
    config.only('norm_topk_prob', [true], true);
    config.idle('num_nextn_predict_layers');
    const { mixers, ropes } = readPooledAttention(config);
    const limit = Math.fround(config.positiveOr(10, 'swiglu_limit'));
    const limited = (glu: GluShape): GluShape => ({ ...glu, limit });
    const shared = readAlways(config, 'moe_intermediate_size', config.countOr(1, 'n_shared_experts'));
    const always: LayerShape['always'] = shared && { ...shared, glu: limited(shared.glu) };
    const routers = readRouters(config);
    const shape = readDecoder(config, {
      ropes,
      layers: mixers.map((mixer, layer) => layerOf(mixer, { routed: routers[layer] ?? null, always })),
      expert: limited(readSwiglu(config, ['moe_intermediate_size'])),
      streams: readMixedStreams(config),
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
    ...MIXED_STREAM_NAMES,
  },
  expert: expertNames('ffn.experts', NUMBERED),
  // A layer that guesses tokens, in names of its own.
  leftOut: [/^mtp\./],
} satisfies TensorNames;
