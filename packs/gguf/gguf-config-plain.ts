/** Architectures with attention of the usual kind in every layer. Keys and their meaning: llama.cpp, conversion/ and gguf-py/gguf/constants.py. */
import type { LayerShape } from '../../shared/model/model-shape.js';
import {
  attentionKeys,
  type ConfigObject,
  decimalOr,
  decoderKeys,
  expertKeys,
  expertScaleOf,
  firstLayerHas,
  GATING,
  type GgufConfig,
  type GgufFacts,
  onlyGating,
  onlyValue,
  ropeKeys,
  rotatedShare,
  unsupportedGguf,
  wholeHeadsRotate,
  withNeighbours,
} from './gguf-config-parts.js';

export const PLAIN_ARCHITECTURES: Readonly<Record<string, (facts: GgufFacts) => GgufConfig>> = {
  qwen3moe,
  llama,
  'gpt-oss': gptOss,
  glm4moe,
  'minimax-m2': minimaxM2,
  qwen2moe,
  'ernie4_5-moe': ernie45Moe,
  granitemoe,
};

const unchanged = (layer: LayerShape): LayerShape => layer;

/** `head`: architectures and model_type of the config.json. */
export function ggufConfigOf(
  { guessingLayers }: GgufFacts,
  head: { architecture: string; modelType: string },
  parts: readonly ConfigObject[],
  layerAsStored: GgufConfig['layerAsStored'] = unchanged,
): GgufConfig {
  const config = { architectures: [head.architecture], model_type: head.modelType };
  return { config: Object.assign(config, ...parts) as ConfigObject, guessingLayers, layerAsStored };
}

/** Decoder, attention and a rope over the whole head. */
function wholeRotation(facts: GgufFacts, theta: number): ConfigObject {
  const attention = attentionKeys(facts);
  wholeHeadsRotate(facts, Number(attention['head_dim']));
  return { ...decoderKeys(facts), ...attention, ...ropeKeys(facts, theta) };
}

/** llama.cpp renormalizes the weights of this architecture always, and so do all published models of it but tiny test ones. */
function qwen3moe(facts: GgufFacts): GgufConfig {
  onlyGating(facts, GATING.softmax);
  onlyValue(facts, 'expert_weights_norm', true);
  onlyValue(facts, 'expert_weights_scale', 1);
  return ggufConfigOf(facts, { architecture: 'Qwen3MoeForCausalLM', modelType: 'qwen3_moe' }, [
    wholeRotation(facts, 10_000),
    expertKeys(facts),
    { norm_topk_prob: true, attention_bias: firstLayerHas(facts, 'attn_q.bias') },
    { intermediate_size: facts.keys.integerOr(0, 'feed_forward_length'), mlp_only_layers: [], decoder_sparse_step: 1 },
  ]);
}

/** Mixtral. A model without experts has this architecture, too. */
function llama(facts: GgufFacts): GgufConfig {
  const { keys } = facts;
  if (keys.integerOr(0, 'expert_count') === 0) {
    throw unsupportedGguf(facts, 'expert_count', 0, 'models with experts, such as Mixtral');
  }
  // The order in which the makers' file had the tensors, before it was converted.
  keys.textOr(null, 'tensor_data_layout');
  onlyGating(facts, GATING.softmax, GATING.softmaxOfChosen);
  const size = keys.integerOr(null, 'expert_feed_forward_length') ?? keys.integer('feed_forward_length');
  keys.integerOr(0, 'feed_forward_length');
  return ggufConfigOf(
    facts,
    { architecture: 'MixtralForCausalLM', modelType: 'mixtral' },
    [
      wholeRotation(facts, 10_000),
      { num_local_experts: keys.integer('expert_count'), num_experts_per_tok: keys.integer('expert_used_count') },
      { intermediate_size: size, sliding_window: null },
    ],
    withNeighbours,
  );
}

/** The bounds of YaRN's ramp are not rounded in the makers' code; the file has no key for it. */
function gptOss(facts: GgufFacts): GgufConfig {
  const { keys } = facts;
  onlyGating(facts, GATING.softmaxOfChosen);
  const rotation = wholeRotation(facts, 150_000);
  const scaling = rotation['rope_scaling'] as ConfigObject | null;
  keys.integerOr(0, 'feed_forward_length');
  const experts = keys.integer('expert_count');
  const used = keys.integer('expert_used_count');
  return ggufConfigOf(facts, { architecture: 'GptOssForCausalLM', modelType: 'gpt_oss' }, [
    rotation,
    { rope_scaling: scaling !== null && scaling['rope_type'] === 'yarn' ? { ...scaling, truncate: false } : scaling },
    { num_local_experts: experts, num_experts_per_tok: used, experts_per_token: used },
    { intermediate_size: keys.integer('expert_feed_forward_length'), attention_bias: true, swiglu_limit: 7 },
    { sliding_window: keys.integer('attention.sliding_window'), layer_types: windowedLayers(facts) },
  ]);
}

/** Every second layer has the window, from the first one on, unless the file says which. */
function windowedLayers({ keys, layers, guessingLayers }: GgufFacts): string[] {
  const all = layers + guessingLayers;
  const key = 'attention.sliding_window_pattern';
  const windows = keys.has(key) ? keys.flags(key, all) : Array.from({ length: all }, (_, layer) => layer % 2 === 0);
  return windows.slice(0, layers).map((windowed) => (windowed ? 'sliding_attention' : 'full_attention'));
}

function glm4moe(facts: GgufFacts): GgufConfig {
  const { keys } = facts;
  onlyGating(facts, GATING.sigmoid);
  const attention = attentionKeys(facts);
  return ggufConfigOf(facts, { architecture: 'Glm4MoeForCausalLM', modelType: 'glm4_moe' }, [
    decoderKeys(facts),
    attention,
    ropeKeys(facts, 10_000),
    { partial_rotary_factor: rotatedShare(facts, Number(attention['head_dim'])) },
    { use_qk_norm: firstLayerHas(facts, 'attn_q_norm.weight'), attention_bias: firstLayerHas(facts, 'attn_q.bias') },
    biasedRouterKeys(facts),
    { intermediate_size: keys.integer('feed_forward_length') },
    { first_k_dense_replace: keys.integerOr(0, 'leading_dense_block_count') },
    { num_nextn_predict_layers: 0 },
  ]);
}

/** Keys of the router of GLM and DeepSeek-V3, and of its experts. */
export function biasedRouterKeys(facts: GgufFacts): ConfigObject {
  const { keys } = facts;
  return {
    n_routed_experts: keys.integer('expert_count'),
    num_experts_per_tok: keys.integer('expert_used_count'),
    moe_intermediate_size: keys.integer('expert_feed_forward_length'),
    n_shared_experts: keys.integerOr(0, 'expert_shared_count'),
    n_group: keys.integerOr(1, 'expert_group_count'),
    topk_group: keys.integerOr(1, 'expert_group_used_count'),
    norm_topk_prob: keys.flagOr(false, 'expert_weights_norm'),
    routed_scaling_factor: expertScaleOf(facts),
  };
}

function minimaxM2(facts: GgufFacts): GgufConfig {
  const { keys } = facts;
  onlyGating(facts, GATING.sigmoid);
  onlyValue(facts, 'expert_weights_norm', true);
  onlyValue(facts, 'expert_weights_scale', 1);
  const attention = attentionKeys(facts);
  keys.integerOr(0, 'feed_forward_length');
  return ggufConfigOf(facts, { architecture: 'MiniMaxM2ForCausalLM', modelType: 'minimax_m2' }, [
    decoderKeys(facts),
    attention,
    ropeKeys(facts, 5e6),
    { rotary_dim: keys.integerOr(Number(attention['head_dim']), 'rope.dimension_count') },
    { num_local_experts: keys.integer('expert_count'), num_experts_per_tok: keys.integer('expert_used_count') },
    { intermediate_size: keys.integer('expert_feed_forward_length'), scoring_func: 'sigmoid' },
    {
      use_qk_norm: firstLayerHas(facts, 'attn_q_norm.weight'),
      use_routing_bias: firstLayerHas(facts, 'exp_probs_b.bias'),
    },
  ]);
}

/** llama.cpp never renormalizes the weights of this architecture. */
function qwen2moe(facts: GgufFacts): GgufConfig {
  onlyGating(facts, GATING.softmax);
  onlyValue(facts, 'expert_weights_norm', false);
  onlyValue(facts, 'expert_weights_scale', 1);
  const { keys } = facts;
  return ggufConfigOf(facts, { architecture: 'Qwen2MoeForCausalLM', modelType: 'qwen2_moe' }, [
    wholeRotation(facts, 10_000),
    expertKeys(facts),
    { shared_expert_intermediate_size: keys.integer('expert_shared_feed_forward_length') },
    { intermediate_size: keys.integerOr(0, 'feed_forward_length'), norm_topk_prob: false, use_sliding_window: false },
    { qkv_bias: firstLayerHas(facts, 'attn_q.bias'), mlp_only_layers: [], decoder_sparse_step: 1 },
  ]);
}

function ernie45Moe(facts: GgufFacts): GgufConfig {
  const { keys } = facts;
  onlyGating(facts, GATING.softmax);
  const shared = keys.integerOr(0, 'expert_shared_count');
  const size = keys.integer('expert_feed_forward_length');
  // The converter computes it from other sizes; the shared tensors say themselves what they have.
  keys.integerOr(0, 'expert_shared_feed_forward_length');
  return ggufConfigOf(facts, { architecture: 'Ernie4_5_MoeForCausalLM', modelType: 'ernie4_5_moe' }, [
    wholeRotation(facts, 500_000),
    { moe_num_experts: keys.integer('expert_count'), moe_k: keys.integer('expert_used_count') },
    { moe_intermediate_size: size, moe_num_shared_experts: shared, use_bias: false },
    { intermediate_size: keys.integer('feed_forward_length') },
    { moe_layer_start_index: keys.integerOr(0, 'leading_dense_block_count') },
    { moe_layer_interval: keys.integerOr(1, 'interleave_moe_layer_step'), moe_layer_end_index: -1 },
  ]);
}

function granitemoe(facts: GgufFacts): GgufConfig {
  const { keys } = facts;
  onlyGating(facts, GATING.softmax, GATING.softmaxOfChosen);
  const shared = keys.integerOr(0, 'expert_shared_feed_forward_length');
  if (shared !== 0) throw unsupportedGguf(facts, 'expert_shared_feed_forward_length', shared, '0, no shared expert');
  const size = keys.integerOr(null, 'expert_feed_forward_length') ?? keys.integer('feed_forward_length');
  keys.integerOr(0, 'feed_forward_length');
  return ggufConfigOf(
    facts,
    { architecture: 'GraniteMoeForCausalLM', modelType: 'granitemoe' },
    [
      wholeRotation(facts, 10_000),
      { num_local_experts: keys.integer('expert_count'), num_experts_per_tok: keys.integer('expert_used_count') },
      { intermediate_size: size, attention_bias: firstLayerHas(facts, 'attn_q.bias') },
      { attention_multiplier: decimalOr(facts, 1, 'attention.scale') },
      { embedding_multiplier: decimalOr(facts, 1, 'embedding_scale') },
      { residual_multiplier: decimalOr(facts, 1, 'residual_scale') },
      { logits_scaling: decimalOr(facts, 1, 'logit_scale') },
    ],
    withNeighbours,
  );
}
