import type { ConfigReader } from './config-reader.js';

/** Most layers. A larger number in a file is an error; memory is allocated for each layer. */
export const MOST_LAYERS = 9999;

/** Number of layers. */
export function readLayerCount(config: ConfigReader): number {
  const key = 'num_hidden_layers';
  const layers = config.size(key);
  if (layers > MOST_LAYERS) throw config.corrupt(`${key} is ${layers}, expected at most ${MOST_LAYERS}`);
  return layers;
}

/** Makes one value for each layer, from its number. */
export function forLayers<T>(config: ConfigReader, make: (layer: number) => T): T[] {
  return Array.from({ length: readLayerCount(config) }, (_, layer) => make(layer));
}

/** Older names of layer kinds. */
const OLDER_KINDS: Readonly<Record<string, string>> = { attention: 'full_attention', mamba: 'linear_attention' };

interface LayerKeys {
  /** Key of the list. */
  list: string;
  /** Keys of the rule. If they are present, rule and list must agree. */
  rule: readonly string[];
  /** Number of layers behind the last one that guess tokens; the list may have entries for them, too. */
  guessing?: number;
}

/**
 * The kind of mixer of each layer: from layer_types, or from a rule if config.json has no such list. Kinds that the family does not have are
 * refused.
 */
export function readLayerKinds<T extends string>(
  config: ConfigReader,
  known: readonly T[],
  rule: (layer: number) => T,
  { list, rule: ruleKeys, guessing = 0 }: LayerKeys = { list: 'layer_types', rule: [] },
): T[] {
  const byRule = forLayers(config, rule);
  const listed = listOfLayers(config, list, config.textsOr(null, list), guessing);
  if (listed === null) return byRule;
  const ruling = ruleKeys.filter((key) => config.has(key));
  return listed.map((kind, layer) => {
    const found = known.find((item) => item === (OLDER_KINDS[kind] ?? kind));
    if (found === undefined) throw config.unsupported(list, kind, known.join(' or '));
    if (ruling.length > 0 && found !== byRule[layer]) {
      throw config.corrupt(
        `${list} says ${found} for layer ${layer}, and ${ruling.join(' and ')} ${byRule[layer] ?? ''}`,
      );
    }
    return found;
  });
}

/** A list with one entry for each layer, without the entries of layers behind the last one that guess tokens. */
export function listOfLayers<T>(
  config: ConfigReader,
  key: string,
  list: readonly T[] | null,
  guessing = 0,
): readonly T[] | null {
  const layers = readLayerCount(config);
  if (list === null || list.length === layers) return list;
  if (list.length === layers + guessing) return list.slice(0, layers);
  throw config.corrupt(`${key} has ${list.length} entries, and num_hidden_layers is ${layers}`);
}

/** True for each layer with experts, by a list or by the family's rule. */
export function readSparseLayers(
  config: ConfigReader,
  rule: (layer: number) => boolean,
  ruleKeys: readonly string[] = [],
): boolean[] {
  const kinds = readLayerKinds(config, ['sparse', 'dense'], (layer) => (rule(layer) ? 'sparse' : 'dense'), {
    list: 'mlp_layer_types',
    rule: ruleKeys,
  });
  return kinds.map((kind) => kind === 'sparse');
}

/** Reads numbers of layers. A number beyond the last layer is refused: it shows that the model has another number of layers. */
export function readLayerNumbers(config: ConfigReader, key: string): ReadonlySet<number> {
  const numbers = config.numbersOr([], key);
  const layers = readLayerCount(config);
  const wrong = numbers.find((number) => !Number.isInteger(number) || number < 0 || number >= layers);
  if (wrong !== undefined) throw config.corrupt(`${key} has layer ${wrong}, and num_hidden_layers is ${layers}`);
  return new Set(numbers);
}

/** Qwen's rule: every `decoder_sparse_step`-th layer has experts, except those in `mlp_only_layers`. */
export function readSparseSteps(config: ConfigReader): boolean[] {
  const step = config.sizeOr(1, 'decoder_sparse_step');
  const dense = readLayerNumbers(config, 'mlp_only_layers');
  const keys = ['decoder_sparse_step', 'mlp_only_layers'];
  return readSparseLayers(config, (layer) => (layer + 1) % step === 0 && !dense.has(layer), keys);
}

/** Number of layers behind the last one that only guess tokens ahead. */
export function readGuessingLayers(config: ConfigReader): number {
  return config.countOr(0, 'num_nextn_predict_layers', 'num_mtp_layers');
}

/** DeepSeek's rule: the first layers are dense; after them every `moe_layer_freq`-th layer has experts. */
export function readSparseBehindDense(config: ConfigReader, fallback = 0): boolean[] {
  const keys = ['first_k_dense_replace', 'num_dense_layers', 'moe_layer_num_skipped'];
  const dense = config.countOr(fallback, ...keys);
  const step = config.sizeOr(1, 'moe_layer_freq');
  return readSparseLayers(config, (layer) => layer >= dense && layer % step === 0, [...keys, 'moe_layer_freq']);
}

/** As above, but a list of kinds counts alone: transformers writes the rule's key beside it, with its default. */
export function readListedOrBehindDense(config: ConfigReader, fallback: number): boolean[] {
  if (!config.has('mlp_layer_types')) return readSparseBehindDense(config, fallback);
  config.idle('first_k_dense_replace');
  return readSparseLayers(config, () => true);
}
