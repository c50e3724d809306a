/** Gemma-4 with experts. Keys and tensors: llama.cpp, conversion/gemma.py (class Gemma4Model), conversion/base.py and src/models/gemma4.cpp. */
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { corruptGguf } from './gguf-errors.js';
import {
  type ConfigObject,
  decimal,
  decimalOr,
  decoderKeys,
  GATING,
  type GgufConfig,
  type GgufFacts,
  hasTensor,
  onlyGating,
  onlyValue,
  sameInAll,
  unsupportedGguf,
} from './gguf-config-parts.js';
import { ggufConfigOf } from './gguf-config-plain.js';
import { ROPE_FACTORS_TENSOR } from './gguf-types.js';

export const GEMMA_ARCHITECTURES: Readonly<Record<string, (facts: GgufFacts) => GgufConfig>> = { gemma4 };

/** The converter divides the angles of pairs that do not rotate by 1e30. */
const UNROTATED = Math.fround(1e30);
const DOWN_EXPERTS = /^blk\.\d{1,9}\.ffn_down_exps\.weight$/;

/** The weights of the experts are always renormalized. The converter adds nothing to norms, and stores the router's scale as it is. */
function gemma4(facts: GgufFacts): GgufConfig {
  const { keys, guessingLayers } = facts;
  if (guessingLayers !== 0) throw unsupportedGguf(facts, 'nextn_predict_layers', guessingLayers, '0');
  if (keys.integerOr(0, 'expert_count') === 0) {
    throw unsupportedGguf(facts, 'expert_count', 0, 'models with experts, such as Gemma-4 26B-A4B');
  }
  onlyGating(facts, GATING.softmax);
  onlyValue(facts, 'expert_weights_norm', true);
  onlyValue(facts, 'expert_weights_scale', 1);
  onlyValue(facts, 'embedding_length_per_layer_input', 0);
  onlyValue(facts, 'attention.shared_kv_layers', 0);
  onlyPlainDown(facts);
  const windowed = windowedLayers(facts);
  const cap = decimalOr(facts, 0, 'final_logit_softcapping');
  const config = ggufConfigOf(facts, { architecture: 'Gemma4ForCausalLM', modelType: 'gemma4_text' }, [
    decoderKeys(facts),
    headKeys(facts, windowed),
    {
      rms_norm_eps: decimal(facts, 'attention.layer_norm_rms_epsilon'),
      final_logit_softcapping: cap === 0 ? null : cap,
    },
    { num_experts: keys.integer('expert_count'), top_k_experts: keys.integer('expert_used_count') },
    { moe_intermediate_size: keys.integer('expert_feed_forward_length') },
    { intermediate_size: sameInAll(facts, 'feed_forward_length'), enable_moe_block: true },
    { hidden_size_per_layer_input: 0, num_kv_shared_layers: 0, hidden_activation: 'gelu_pytorch_tanh' },
    { sliding_window: keys.integer('attention.sliding_window') },
    { layer_types: windowed.map((one) => (one ? 'sliding_attention' : 'full_attention')) },
  ]);
  return { ...config, tensorsRead: [ROPE_FACTORS_TENSOR] };
}

/** Refuses NVFP4 in the experts' second matrix: its scales have the name under which other files keep the experts' own factors. */
function onlyPlainDown({ model }: GgufFacts): void {
  const down = [...model.tensors.values()].find(({ name, type }) => type === 'NVFP4' && DOWN_EXPERTS.test(name));
  if (down === undefined) return;
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${down.path}: tensor ${down.name} is NVFP4, and its scales are joined with the factors of the experts; get the model as safetensors`,
  );
}

/** Layers with a window. The last layer never has one, whatever the makers' list says, so a file where it has one is refused. */
function windowedLayers(facts: GgufFacts): readonly boolean[] {
  const pattern = 'attention.sliding_window_pattern';
  const windowed = facts.keys.flags(pattern, facts.layers);
  if (windowed.at(-1) === true) throw unsupportedGguf(facts, pattern, true, 'false for the last layer');
  return windowed;
}

/** Heads and ropes of both kinds of layers. Keys without "_swa" are those of layers without a window. */
function headKeys(facts: GgufFacts, windowed: readonly boolean[]): ConfigObject {
  const { keys } = facts;
  const globalDim = headDimOf(facts, '');
  const headDim = headDimOf(facts, '_swa');
  const heads = keys.integers('attention.head_count_kv', facts.layers);
  const globalHeads = sameInKind(facts, heads, (layer) => windowed[layer] === false);
  const windowHeads = windowed.includes(true)
    ? sameInKind(facts, heads, (layer) => windowed[layer] === true)
    : globalHeads;
  const keysAreValues = globalKeysAreValues(facts, windowed);
  if (!keysAreValues && globalHeads !== windowHeads) {
    throw unsupportedGguf(
      facts,
      'attention.head_count_kv',
      globalHeads,
      `${windowHeads} in all layers that have attn_v.weight`,
    );
  }
  return {
    num_attention_heads: sameInAll(facts, 'attention.head_count'),
    num_key_value_heads: windowHeads,
    ...(keysAreValues && { num_global_key_value_heads: globalHeads }),
    attention_k_eq_v: keysAreValues,
    head_dim: headDim,
    global_head_dim: globalDim,
    rope_parameters: {
      sliding_attention: { rope_type: 'default', rope_theta: decimal(facts, 'rope.freq_base_swa') },
      full_attention: {
        rope_type: 'proportional',
        rope_theta: decimal(facts, 'rope.freq_base'),
        partial_rotary_factor: shareOf(rotatedPairs(facts, globalDim), globalDim),
      },
    },
  };
}

/** Dimensions of a head; keys and values have the same, and the file says that all of them rotate. */
function headDimOf(facts: GgufFacts, kind: '' | '_swa'): number {
  const size = facts.keys.integer(`attention.key_length${kind}`);
  if (size < 2 || size % 2 !== 0) throw unsupportedGguf(facts, `attention.key_length${kind}`, size, 'an even number');
  onlyValue(facts, `attention.value_length${kind}`, size);
  onlyValue(facts, `rope.dimension_count${kind}`, size);
  return size;
}

function sameInKind(facts: GgufFacts, heads: readonly number[], isOfKind: (layer: number) => boolean): number {
  const [first = 0, ...others] = heads.filter((_, layer) => isOfKind(layer));
  const other = others.find((count) => count !== first);
  if (other === undefined) return first;
  throw unsupportedGguf(facts, 'attention.head_count_kv', other, `${first} in all layers of the same kind`);
}

/** True if the layers without a window have no matrix for values; they take the keys. */
function globalKeysAreValues(facts: GgufFacts, windowed: readonly boolean[]): boolean {
  const layers = [...windowed.keys()].filter((layer) => windowed[layer] === false);
  const without = layers.filter((layer) => !hasTensor(facts, `blk.${layer}.attn_v.weight`));
  if (without.length === 0 || without.length === layers.length) return without.length > 0;
  throw corruptGguf(
    facts.model.path,
    `tensor blk.${without[0]}.attn_v.weight is missing, and other layers without a window have one`,
  );
}

/** Pairs of a head that rotate in layers without a window. The file divides the angle of each pair by a factor: first ones, then 1e30. */
function rotatedPairs({ model }: GgufFacts, headDim: number): number {
  const factors = model.ropeFactors;
  const what = `tensor ${ROPE_FACTORS_TENSOR}`;
  if (factors === undefined) throw corruptGguf(model.path, `${what} is missing, or is not F32`);
  if (factors.length !== headDim / 2) {
    throw corruptGguf(model.path, `${what} has ${factors.length} values, expected ${headDim / 2}, half of a head`);
  }
  const firstOther = factors.findIndex((factor) => factor !== 1);
  const pairs = firstOther === -1 ? factors.length : firstOther;
  const strange = factors.slice(pairs).find((factor) => factor !== UNROTATED);
  if (strange === undefined) return pairs;
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${model.path}: ${what} has the factor ${strange}, supported: 1 for the first pairs of a head, then 1e30; get the model as safetensors`,
  );
}

/** The share of a head from which its reader gets this number of pairs. It rounds down, so a share that was rounded down would lose a pair. */
function shareOf(pairs: number, headDim: number): number {
  const share = (2 * pairs) / headDim;
  return Math.floor((share * headDim) / 2) === pairs ? share : share + Number.EPSILON;
}
