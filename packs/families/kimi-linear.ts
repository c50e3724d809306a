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
import { channelDeltaNames, readChannelDelta } from '../model-config/delta-net.js';
import { latentNames, readPlainLatentAttention } from '../model-config/latent-attention.js';
import { forLayers, readLayerKinds, readSparseBehindDense } from '../model-config/layer-kinds.js';
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
  const listed = readListedLayers(config);
  const kinds = readLayerKinds(
    config,
    ['linear_attention', 'full_attention'],
    (layer) => ((listed?.[layer] ?? (layer > 0 && layer % 4 === 0)) ? 'full_attention' : 'linear_attention'),
    { list: 'layer_types', rule: listed === null ? [] : ['linear_attn_config'] },
  );
  return kinds.map((kind) => kind === 'full_attention');
}

/** The layers of linear_attn_config, whose lists count from 1; null: there are no lists. Each layer stands in one of the two. */
function readListedLayers(config: ConfigReader): boolean[] | null {
  const lists = config.within('linear_attn_config');
  const full = lists?.numbersOr(null, 'full_attn_layers') ?? null;
  const linear = lists?.numbersOr(null, 'kda_layers') ?? null;
  if (full === null && linear === null) return null;
  const said = [...(full ?? []), ...(linear ?? [])].sort((a, b) => a - b);
  const numbers = forLayers(config, (layer) => layer + 1);
  if (said.length !== numbers.length || said.some((number, index) => number !== numbers[index])) {
    throw config.corrupt(
      `full_attn_layers and kda_layers of linear_attn_config do not name each of the ${numbers.length} layers once`,
    );
  }
  return numbers.map((number) => full?.includes(number) === true);
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
