/** Architectures whose layers have mixers of several kinds. Keys: llama.cpp, conversion/qwen.py and conversion/lfm2.py. */
import type { LayerShape } from '../../shared/model/model-shape.js';
import { corruptGguf } from './gguf-errors.js';
import { ggufConfigOf } from './gguf-config-plain.js';
import {
  attentionKeys,
  decimal,
  expertScaleOf,
  hasTensor,
  headDimOf,
  sameInAll,
  unsupportedGguf,
  wholeHeadsRotate,
  type ConfigObject,
  decoderKeys,
  expertKeys,
  GATING,
  type GgufConfig,
  type GgufFacts,
  onlyGating,
  onlyValue,
  ropeKeys,
  rotatedShare,
  withRates,
  withTiledHeads,
} from './gguf-config-parts.js';

export const HYBRID_ARCHITECTURES: Readonly<Record<string, (facts: GgufFacts) => GgufConfig>> = {
  qwen3next,
  qwen35moe,
  lfm2moe,
};

const SECTIONS = 4;

function qwen3next(facts: GgufFacts): GgufConfig {
  const head = { architecture: 'Qwen3NextForCausalLM', modelType: 'qwen3_next' };
  return ggufConfigOf(facts, head, [deltaKeys(facts), { decoder_sparse_step: 1, mlp_only_layers: [] }], withRates);
}

function qwen35moe(facts: GgufFacts): GgufConfig {
  // Positions of images; all positions of a text are the same in all sections.
  if (facts.keys.has('rope.dimension_sections')) facts.keys.integers('rope.dimension_sections', SECTIONS);
  const head = { architecture: 'Qwen3_5MoeForCausalLM', modelType: 'qwen3_5_moe' };
  const asStored = (layer: LayerShape): LayerShape => withTiledHeads(withRates(layer));
  return ggufConfigOf(facts, head, [deltaKeys(facts)], asStored);
}

/** A layer without key-value heads is a convolution. llama.cpp renormalizes the weights of this architecture always. */
function lfm2moe(facts: GgufFacts): GgufConfig {
  const { keys, layers, guessingLayers } = facts;
  onlyGating(facts, GATING.sigmoid);
  onlyValue(facts, 'expert_weights_norm', true);
  const heads = sameInAll(facts, 'attention.head_count');
  const ofLayers = keys.integers('attention.head_count_kv', layers + guessingLayers).slice(0, layers);
  const most = Math.max(...ofLayers);
  const other = ofLayers.find((count) => count !== 0 && count !== most);
  if (other !== undefined) throw unsupportedGguf(facts, 'attention.head_count_kv', other, `0 or ${most}`);
  const headDim = headDimOf(facts, heads);
  wholeHeadsRotate(facts, headDim);
  const routed = Array.from({ length: layers }, (_, layer) => hasTensor(facts, `blk.${layer}.exp_probs_b.bias`));
  return ggufConfigOf(facts, { architecture: 'Lfm2MoeForCausalLM', modelType: 'lfm2_moe' }, [
    decoderKeys(facts),
    ropeKeys(facts, 1e6),
    expertKeys(facts),
    { num_attention_heads: heads, num_key_value_heads: most, head_dim: headDim },
    { norm_eps: decimal(facts, 'attention.layer_norm_rms_epsilon'), norm_topk_prob: true },
    { layer_types: ofLayers.map((count) => (count === 0 ? 'conv' : 'full_attention')) },
    { conv_L_cache: keys.integer('shortconv.l_cache'), conv_bias: false },
    { intermediate_size: keys.integer('feed_forward_length') },
    { num_dense_layers: keys.integerOr(0, 'leading_dense_block_count') },
    { use_expert_bias: routed.includes(true), routed_scaling_factor: expertScaleOf(facts) },
  ]);
}

/** Both renormalize the weights always. */
function deltaKeys(facts: GgufFacts): ConfigObject {
  const { keys, model } = facts;
  onlyGating(facts, GATING.softmax);
  onlyValue(facts, 'expert_weights_norm', true);
  onlyValue(facts, 'expert_weights_scale', 1);
  const attention = attentionKeys(facts);
  const valueHeads = keys.integer('ssm.time_step_rank');
  const values = keys.integer('ssm.inner_size');
  if (valueHeads < 1 || values % valueHeads !== 0) {
    throw corruptGguf(model.path, `ssm.inner_size ${values} is no multiple of ssm.time_step_rank ${valueHeads}`);
  }
  return {
    ...decoderKeys(facts),
    ...attention,
    ...ropeKeys(facts, 10_000),
    ...expertKeys(facts),
    partial_rotary_factor: rotatedShare(facts, Number(attention['head_dim'])),
    shared_expert_intermediate_size: keys.integer('expert_shared_feed_forward_length'),
    intermediate_size: keys.integerOr(0, 'feed_forward_length'),
    norm_topk_prob: true,
    linear_num_key_heads: keys.integer('ssm.group_count'),
    linear_num_value_heads: valueHeads,
    linear_key_head_dim: keys.integer('ssm.state_size'),
    linear_value_head_dim: values / valueHeads,
    linear_conv_kernel_dim: keys.integer('ssm.conv_kernel'),
    layer_types: deltaLayers(facts),
  };
}

/** Layers without attention: by a list, or all but every fourth one or so. */
function deltaLayers({ keys, layers, guessingLayers }: GgufFacts): string[] {
  const all = layers + guessingLayers;
  const list = 'attention.recurrent_layers';
  const interval = Math.max(1, keys.integerOr(4, 'full_attention_interval'));
  const delta = keys.has(list)
    ? keys.flags(list, all)
    : Array.from({ length: all }, (_, layer) => (layer + 1) % interval !== 0);
  return delta.slice(0, layers).map((recurrent) => (recurrent ? 'linear_attention' : 'full_attention'));
}
