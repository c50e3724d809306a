import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { LayerShape, ModelShape } from '../../shared/model/model-shape.js';
import { corruptGguf, shownGgufValue } from './gguf-errors.js';
import type { GgufKeyReader } from './gguf-keys.js';
import type { GgufModel } from './gguf-types.js';

/** The object of a config.json. */
export type ConfigObject = Record<string, unknown>;

/** The model's configuration, made from the keys and the tensors of a file. */
export interface GgufConfig {
  /** The config.json that the Hugging Face checkpoint of the model would have. */
  config: ConfigObject;
  /** Layers of the file behind the model's last one, which only guess tokens ahead. */
  guessingLayers: number;
  /** Changes a layer where the converter stored its tensors in another order than the checkpoint has. */
  layerAsStored: (layer: LayerShape) => LayerShape;
  /** Names of tensors whose values the config.json has; the model needs no others of them. */
  tensorsRead?: readonly string[];
}

/** A file's keys under the name of its architecture, and its tensors. */
export interface GgufFacts {
  keys: GgufKeyReader;
  model: GgufModel;
  /** Layers of the model, without those that guess ahead. */
  layers: number;
  guessingLayers: number;
}

/** Most layers; a larger number is an error. */
const MOST_LAYERS = 9999;

/** @throws MODEL_CORRUPT */
export function ggufFacts(model: GgufModel, keys: GgufKeyReader): GgufFacts {
  const blocks = keys.integer('block_count');
  const guessingLayers = keys.integerOr(0, 'nextn_predict_layers');
  const layers = blocks - guessingLayers;
  if (layers < 1 || blocks > MOST_LAYERS) {
    throw corruptGguf(
      model.path,
      `block_count is ${blocks} and nextn_predict_layers ${guessingLayers}, expected 1 to ${MOST_LAYERS} layers`,
    );
  }
  return { keys, model, layers, guessingLayers };
}

export function hasTensor({ model }: GgufFacts, name: string): boolean {
  return model.tensors.has(name);
}

/** True if the first layer of the file has the tensor. */
export function firstLayerHas(facts: GgufFacts, name: string): boolean {
  return hasTensor(facts, `blk.0.${name}`);
}

/** The error for a value that is read and that this odmoe does not compute. */
export function unsupportedGguf({ keys, model }: GgufFacts, name: string, value: unknown, wanted: string): OdmoeError {
  const shown = typeof value === 'string' || typeof value === 'number' ? shownGgufValue(value) : String(value);
  return new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${model.path}: key ${keys.prefix}${name} is ${shown}, supported: ${wanted}; get the model as safetensors`,
  );
}

/**
 * The shortest decimal number that has this FP32 value. Converters write FP32 keys from the decimal numbers of a config.json: 1e-6 becomes
 * 9.999999974752427e-7, and is 1e-6 again here.
 */
export function shortestDecimal(value: number): number {
  for (let digits = 6; digits <= 9; digits += 1) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return value;
}

export function decimal({ keys }: GgufFacts, name: string): number {
  return shortestDecimal(keys.float(name));
}

export function decimalOr<F>({ keys }: GgufFacts, fallback: F, name: string): number | F {
  const value = keys.floatOr(null, name);
  return value === null ? fallback : shortestDecimal(value);
}

/** A number that must be the same in all layers. @throws MODEL_UNSUPPORTED if it is not */
export function sameInAll(facts: GgufFacts, name: string): number {
  const values = facts.keys.integers(name, facts.layers + facts.guessingLayers);
  const [first = 0] = values;
  const other = values.slice(0, facts.layers).find((value) => value !== first);
  if (other !== undefined) throw unsupportedGguf(facts, name, other, `one number for all layers, such as ${first}`);
  return first;
}

/** Keys of any decoder. */
export function decoderKeys(facts: GgufFacts): ConfigObject {
  const { keys, model, layers } = facts;
  const embedding = model.tensors.get('token_embd.weight');
  if (embedding === undefined) throw corruptGguf(model.path, 'tensor token_embd.weight is missing');
  const vocabulary = embedding.dimensions[0] ?? 0;
  const said = keys.integerOr(vocabulary, 'vocab_size');
  if (said !== vocabulary) {
    throw corruptGguf(model.path, `vocab_size is ${said}, and token_embd.weight has ${vocabulary} rows`);
  }
  return {
    vocab_size: vocabulary,
    hidden_size: keys.integer('embedding_length'),
    num_hidden_layers: layers,
    max_position_embeddings: keys.integer('context_length'),
    tie_word_embeddings: !hasTensor(facts, 'output.weight'),
  };
}

/** Keys of attention in its usual form, with one size of head. */
export function attentionKeys(facts: GgufFacts): ConfigObject {
  const heads = sameInAll(facts, 'attention.head_count');
  return {
    num_attention_heads: heads,
    num_key_value_heads: facts.keys.has('attention.head_count_kv')
      ? sameInAll(facts, 'attention.head_count_kv')
      : heads,
    head_dim: headDimOf(facts, heads),
    rms_norm_eps: decimal(facts, 'attention.layer_norm_rms_epsilon'),
  };
}

/** Dimensions of a head; keys and values must have the same. */
export function headDimOf(facts: GgufFacts, heads: number): number {
  const { keys, model } = facts;
  const hidden = keys.integer('embedding_length');
  const size = keys.integerOr(null, 'attention.key_length') ?? (heads > 0 && hidden % heads === 0 ? hidden / heads : 0);
  if (size < 1)
    throw corruptGguf(model.path, `${hidden} dimensions are no multiple of ${heads} heads, and key_length is missing`);
  const values = keys.integerOr(size, 'attention.value_length');
  if (values !== size) throw unsupportedGguf(facts, 'attention.value_length', values, `key_length, which is ${size}`);
  return size;
}

/** Keys of the experts. */
export function expertKeys({ keys }: GgufFacts): ConfigObject {
  return {
    num_experts: keys.integer('expert_count'),
    num_experts_per_tok: keys.integer('expert_used_count'),
    moe_intermediate_size: keys.integer('expert_feed_forward_length'),
  };
}

/** llama.cpp's numbers of the functions that make scores of a router's logits (llama_expert_gating_func_type). */
export const GATING = { softmax: 1, sigmoid: 2, softmaxOfChosen: 3 } as const;

/** Refuses another function than the architecture has. */
export function onlyGating(facts: GgufFacts, ...allowed: readonly number[]): void {
  const found = facts.keys.integerOr(null, 'expert_gating_func');
  if (found === null || found === 0 || allowed.includes(found)) return;
  throw unsupportedGguf(facts, 'expert_gating_func', found, allowed.join(' or '));
}

/** Refuses a value of a key that may be absent. */
export function onlyValue(facts: GgufFacts, name: string, wanted: number | boolean): void {
  const { keys } = facts;
  const found = typeof wanted === 'boolean' ? keys.flagOr(wanted, name) : decimalOr(facts, wanted, name);
  if (found !== wanted) throw unsupportedGguf(facts, name, found, String(wanted));
}

/** The factor of the experts' weights; absent or 0 means none. */
export function expertScaleOf(facts: GgufFacts): number {
  const scale = decimalOr(facts, 1, 'expert_weights_scale');
  return scale === 0 ? 1 : scale;
}

/** Keys of a rope that rotates `dimensions` of a head. */
export function ropeKeys(facts: GgufFacts, usualTheta: number): ConfigObject {
  return { rope_theta: decimalOr(facts, usualTheta, 'rope.freq_base'), rope_scaling: ropeScaling(facts) };
}

/** Refuses a rope that rotates only a part of a head of `headDim` dimensions. */
export function wholeHeadsRotate(facts: GgufFacts, headDim: number): void {
  const dimensions = facts.keys.integerOr(headDim, 'rope.dimension_count');
  if (dimensions !== headDim)
    throw unsupportedGguf(facts, 'rope.dimension_count', dimensions, `${headDim}, all of a head`);
}

/** Share of a head that is rotated. */
export function rotatedShare({ keys }: GgufFacts, headDim: number): number {
  return keys.integerOr(headDim, 'rope.dimension_count') / headDim;
}

function ropeScaling(facts: GgufFacts): ConfigObject | null {
  const { keys } = facts;
  const type = keys.textOr('none', 'rope.scaling.type');
  onlyValue(facts, 'rope.scaling.attn_factor', 1);
  // Says where the factor comes from, and changes no angle.
  keys.flagOr(false, 'rope.scaling.finetuned');
  if (type === 'none') return null;
  const factor = decimal(facts, 'rope.scaling.factor');
  if (type === 'linear') {
    // It counts only for ropes that llama.cpp stretches itself.
    keys.integerOr(null, 'rope.scaling.original_context_length');
    return { rope_type: 'linear', factor };
  }
  if (type !== 'yarn') throw unsupportedGguf(facts, 'rope.scaling.type', type, 'none, linear or yarn');
  onlyValue(facts, 'rope.scaling.yarn_ext_factor', 1);
  onlyValue(facts, 'rope.scaling.yarn_attn_factor', 1);
  const original = keys.integerOr(null, 'rope.scaling.original_context_length');
  // The converter writes 0.1 times mscale_all_dim, and takes mscale to be the same.
  const logMultiplier = keys.floatOr(0, 'rope.scaling.yarn_log_multiplier');
  const mscale = shortestDecimal(Math.fround(shortestDecimal(logMultiplier) * 10));
  return {
    rope_type: 'yarn',
    factor,
    ...(original !== null && { original_max_position_embeddings: original }),
    beta_fast: decimalOr(facts, 32, 'rope.scaling.yarn_beta_fast'),
    beta_slow: decimalOr(facts, 1, 'rope.scaling.yarn_beta_slow'),
    ...(mscale !== 0 && { mscale, mscale_all_dim: mscale }),
  };
}

/** Rotates pairs of neighbours: the converter permuted the rows of queries and keys so (its function `permute`). */
export function withNeighbours(layer: LayerShape): LayerShape {
  const { mixer } = layer;
  if (mixer.kind !== 'attention' || mixer.rotary === null) return layer;
  return { ...layer, mixer: { ...mixer, rotary: { ...mixer.rotary, pairing: 'neighbours' } } };
}

/** The file has the decay's rate itself, not its logarithm. */
export function withRates(layer: LayerShape): LayerShape {
  const { mixer } = layer;
  return mixer.kind === 'delta' ? { ...layer, mixer: { ...mixer, decayForm: 'rate' } } : layer;
}

/** Value heads stand in tiles: the first of each key head, then the second of each. */
export function withTiledHeads(layer: LayerShape): LayerShape {
  const { mixer } = layer;
  return mixer.kind === 'delta' ? { ...layer, mixer: { ...mixer, valueHeadOrder: 'tiled' } } : layer;
}

export function asStored(shape: ModelShape, { layerAsStored }: GgufConfig): ModelShape {
  return { ...shape, layers: shape.layers.map((layer) => layerAsStored(layer)) };
}
