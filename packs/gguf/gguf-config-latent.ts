/** DeepSeek's architecture, with latent attention. Keys: llama.cpp, conversion/deepseek.py and src/models/deepseek2.cpp. */
import { corruptGguf } from './gguf-errors.js';
import { biasedRouterKeys, ggufConfigOf } from './gguf-config-plain.js';
import {
  type ConfigObject,
  decimal,
  decoderKeys,
  expertScaleOf,
  firstLayerHas,
  GATING,
  type GgufConfig,
  type GgufFacts,
  onlyGating,
  ropeKeys,
  sameInAll,
  unsupportedGguf,
} from './gguf-config-parts.js';

export const DEEPSEEK_ARCHITECTURES: Readonly<Record<string, (facts: GgufFacts) => GgufConfig>> = { deepseek2 };

/** Layers of DeepSeek-V3 and R1. Files from before the key for the scores' function say by them that it is the sigmoid. */
const V3_LAYERS = 61;

/**
 * Router groups by the number of experts, for files from before the keys for them (November 2025). From the makers' config.json: V3 and R1 have
 * 256 experts, V2 160; Kimi K2 and V2-Lite have no groups.
 */
const OLDER_GROUPS: ReadonlyMap<number, readonly [groups: number, kept: number]> = new Map([
  [256, [8, 4]],
  [160, [8, 3]],
]);

function deepseek2(facts: GgufFacts): GgufConfig {
  const { keys, layers } = facts;
  onlyGating(facts, GATING.softmax, GATING.sigmoid);
  const gating = keys.integerOr(0, 'expert_gating_func');
  const sigmoid = gating === 0 ? layers === V3_LAYERS : gating === GATING.sigmoid;
  const common = [
    decoderKeys(facts),
    latentKeys(facts),
    ropeKeys(facts, 10_000),
    biasedRouterKeys(facts),
    groupKeys(facts),
    { intermediate_size: keys.integer('feed_forward_length') },
    {
      first_k_dense_replace: keys.integerOr(0, 'leading_dense_block_count'),
      routed_scaling_factor: expertScaleOf(facts),
    },
  ];
  if (sigmoid) {
    const head = { architecture: 'DeepseekV3ForCausalLM', modelType: 'deepseek_v3' };
    const router = { scoring_func: 'sigmoid', topk_method: 'noaux_tc', num_nextn_predict_layers: 0 };
    return ggufConfigOf(facts, head, [...common, router]);
  }
  const head = { architecture: 'DeepseekV2ForCausalLM', modelType: 'deepseek_v2' };
  const grouped = common.some((part: Readonly<Record<string, unknown>>) => Number(part['n_group'] ?? 0) > 1);
  const method = grouped ? { topk_method: 'group_limited_greedy' } : { topk_method: 'greedy' };
  return ggufConfigOf(facts, head, [...common, { scoring_func: 'softmax', ...method }]);
}

function groupKeys({ keys }: GgufFacts): ConfigObject {
  const [groups, kept] = OLDER_GROUPS.get(keys.integer('expert_count')) ?? [1, 1];
  return {
    n_group: keys.integerOr(groups, 'expert_group_count'),
    topk_group: keys.integerOr(kept, 'expert_group_used_count'),
  };
}

/** Files from before April 2025 give the sizes of a head under the names that now mean those of the latent. */
function latentKeys(facts: GgufFacts): ConfigObject {
  const { keys, model } = facts;
  const heads = sameInAll(facts, 'attention.head_count');
  const latentSize = keys.integer('attention.kv_lora_rank');
  const ropeSize = keys.integer('rope.dimension_count');
  sameInAll(facts, 'attention.head_count_kv');
  const [stored, storedValue] = [keys.integer('attention.key_length'), keys.integer('attention.value_length')];
  const keySize = keys.integerOr(stored, 'attention.key_length_mla');
  const valueSize = keys.integerOr(storedValue, 'attention.value_length_mla');
  if (keySize <= ropeSize) {
    throw corruptGguf(model.path, `a head's key has ${keySize} dimensions, of which ${ropeSize} are rotated`);
  }
  if (keys.has('attention.key_length_mla') && stored !== latentSize + ropeSize) {
    throw unsupportedGguf(
      facts,
      'attention.key_length',
      stored,
      `${latentSize + ropeSize}, the latent and the rotated part`,
    );
  }
  const queryRank = keys.integerOr(0, 'attention.q_lora_rank');
  return {
    num_attention_heads: heads,
    num_key_value_heads: heads,
    q_lora_rank: queryRank === 0 || !firstLayerHas(facts, 'attn_q_a.weight') ? null : queryRank,
    kv_lora_rank: latentSize,
    qk_nope_head_dim: keySize - ropeSize,
    qk_rope_head_dim: ropeSize,
    v_head_dim: valueSize,
    rms_norm_eps: decimal(facts, 'attention.layer_norm_rms_epsilon'),
  };
}
