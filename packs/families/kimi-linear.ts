import type { TensorNames } from '../model-config/checkpoint-layout.js';
import type { ConfigReader } from '../model-config/config-reader.js';
import {
  modelConfig,
  readDecoder,
  readNormEpsilon,
  readSharedOrDense,
  readSwiglu,
  routerOf,
} from '../model-config/decoder-config.js';
import { channelDeltaNames, readChannelDelta, readChannelDeltaLayers } from '../model-config/delta-net.js';
import { latentNames, readPlainLatentAttention } from '../model-config/latent-attention.js';
import { readLayerKinds, readSparseBehindDense } from '../model-config/layer-kinds.js';
import type { ModelFamily } from '../model-config/model-family.js';
import { alwaysNames, DECODER_NAMES, expertNames, NUMBERED } from '../model-config/tensor-names.js';
import type { RouterShape } from '../../shared/model/model-shape.js';

/** Kimi-Linear: Kimi delta attention, in every fourth layer latent attention without rotation, and DeepSeek-V3's router. */
export const kimiLinear: ModelFamily = {
  name: 'kimi_linear',
  architectures: ['KimiLinearForCausalLM'],
  explained: { use_grouped_topk: { why: 'it changes nothing without router groups', when: ['num_expert_group', 1] } },
  readConfig(config) {
    config.only('mla_use_nope', [true], true);
    if (config.countOr(1, 'num_expert_group') > 1) config.only('use_grouped_topk', [true], true);
    // Nothing is rotated.
    config.idle('rope_theta', 'rope_scaling', 'rope_parameters');
    const latent = readPlainLatentAttention(config, 0);
    if (latent.queryRank > 0) throw config.unsupported('q_lora_rank', latent.queryRank, 'null');
    const normEpsilon = readNormEpsilon(config, 1e-5);
    const delta = readChannelDelta(config, normEpsilon, 32);
    const full = readFullLayers(config);
    const routed = readRouter(config);
    const shared = config.countOr(1, 'num_shared_experts', 'n_shared_experts');
    const layers = readSharedOrDense(config, readSparseBehindDense(config, 1), { mixer: latent, routed, shared });
    const shape = readDecoder(config, {
      maxPositions: config.size('model_max_length', 'max_position_embeddings'),
      normEpsilon,
      ropes: [],
      layers: layers.map((layer, number) => (full[number] === true ? layer : { ...layer, mixer: delta })),
      expert: readSwiglu(config, ['moe_intermediate_size']),
      expertsPerToken: config.size('num_experts_per_token', 'num_experts_per_tok'),
    });
    const names: TensorNames = {
      ...DECODER_NAMES,
      layer: {
        ...DECODER_NAMES.layer,
        ...latentNames(latent),
        ...channelDeltaNames(delta),
        ...alwaysNames('mlp', 'block_sparse_moe.shared_experts'),
        router: 'block_sparse_moe.gate.weight',
        choiceBias: 'block_sparse_moe.gate.e_score_correction_bias',
      },
      expert: expertNames('block_sparse_moe.experts', NUMBERED),
    };
    return modelConfig(config, shape, names, { eos: 163_586 });
  },
};

/** True for each layer with latent attention. */
function readFullLayers(config: ConfigReader): boolean[] {
  const listed = readChannelDeltaLayers(config, 1);
  const kinds = readLayerKinds(
    config,
    ['linear_attention', 'full_attention'],
    (layer) => ((listed?.[layer] ?? (layer === 0 || layer % 4 !== 0)) ? 'linear_attention' : 'full_attention'),
    { list: 'layer_types', rule: listed === null ? [] : ['linear_attn_config'] },
  );
  return kinds.map((kind) => kind === 'full_attention');
}

/** DeepSeek-V3's router, under keys of its own. */
function readRouter(config: ConfigReader): RouterShape {
  config.only('moe_router_activation_func', ['sigmoid'], 'sigmoid');
  config.notNull('topk_group');
  return routerOf({
    score: 'sigmoid',
    choiceBias: true,
    groups: config.sizeOr(1, 'num_expert_group', 'n_group'),
    groupsKept: config.sizeOr(1, 'topk_group'),
    groupScore: 'best-two',
    normalize: config.flagOr(true, 'moe_renormalize', 'norm_topk_prob'),
    sumEpsilon: Math.fround(1e-20),
    scale: Math.fround(config.numberOr(2.446, 'routed_scaling_factor')),
  });
}
