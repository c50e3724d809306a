import type { ConfigReader } from './config-reader.js';

/** More layers than this are a lie; for each of them something is allocated. */
const MOST_LAYERS = 9999;

/** Number of layers. */
function readLayerCount(config: ConfigReader): number {
  const key = 'num_hidden_layers';
  const layers = config.size(key);
  if (layers > MOST_LAYERS) throw config.corrupt(`${key} is ${layers}, expected at most ${MOST_LAYERS}`);
  return layers;
}

/** Something of each layer, from its number. */
export function forLayers<T>(config: ConfigReader, make: (layer: number) => T): T[] {
  return Array.from({ length: readLayerCount(config) }, (_, layer) => make(layer));
}

/** Older names of kinds of layers. */
const OLDER_KINDS: Readonly<Record<string, string>> = { attention: 'full_attention' };

interface LayerKeys {
  /** Of the list. */
  list: string;
  /** Of the rule: where they are there, rule and list must agree. */
  rule: readonly string[];
}

/**
 * What kind of mixer each layer has: layer_types, or what a rule says where config.json has no such list. Kinds that are not among those
 * of the family are refused.
 */
export function readLayerKinds<T extends string>(
  config: ConfigReader,
  known: readonly T[],
  rule: (layer: number) => T,
  { list, rule: ruleKeys }: LayerKeys = { list: 'layer_types', rule: [] },
): T[] {
  const listed = config.textsOr(null, list);
  const byRule = forLayers(config, rule);
  if (listed === null) return byRule;
  if (listed.length !== byRule.length) {
    throw config.corrupt(`${list} has ${listed.length} entries, and num_hidden_layers is ${byRule.length}`);
  }
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

/** Which layers have experts, where a list or the family's rule says so. */
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

/** Numbers of some layers; one that the model does not have is a sign that it has another number of layers. */
export function readLayerNumbers(config: ConfigReader, key: string): ReadonlySet<number> {
  const numbers = config.numbersOr([], key);
  const layers = readLayerCount(config);
  const wrong = numbers.find((number) => !Number.isInteger(number) || number < 0 || number >= layers);
  if (wrong !== undefined) throw config.corrupt(`${key} has layer ${wrong}, and num_hidden_layers is ${layers}`);
  return new Set(numbers);
}

/** Qwen's rule: every so many layers has experts, but for some. */
export function readSparseSteps(config: ConfigReader): boolean[] {
  const step = config.sizeOr(1, 'decoder_sparse_step');
  const dense = readLayerNumbers(config, 'mlp_only_layers');
  const keys = ['decoder_sparse_step', 'mlp_only_layers'];
  return readSparseLayers(config, (layer) => (layer + 1) % step === 0 && !dense.has(layer), keys);
}

/** How many layers behind the last one only guess tokens ahead. */
export function readGuessingLayers(config: ConfigReader): number {
  return config.countOr(0, 'num_nextn_predict_layers', 'num_mtp_layers');
}

/** DeepSeek's rule: the first layers are dense, then every so many has experts. */
export function readSparseBehindDense(config: ConfigReader, fallback = 0): boolean[] {
  const keys = ['first_k_dense_replace', 'num_dense_layers', 'moe_layer_num_skipped'];
  const dense = config.countOr(fallback, ...keys);
  const step = config.sizeOr(1, 'moe_layer_freq');
  return readSparseLayers(config, (layer) => layer >= dense && layer % step === 0, [...keys, 'moe_layer_freq']);
}
