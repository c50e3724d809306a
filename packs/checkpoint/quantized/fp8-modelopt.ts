import { type ConfigReader, shortName } from '../../model-config/config-reader.js';
import type { WeightScheme } from '../../model-config/weight-scheme.js';

const FP8_BLOCKS = [128, 128];
/** Which modules are quantized is seen by their tensors; the others change nothing here. */
export const NEUTRAL_KEYS = ['modules_to_not_convert', 'ignored_layers', 'ignore', 'scale_fmt', 'dequantize'] as const;

/**
 * The schemes of FP8 in blocks, or with one scale for a matrix (null blocks).
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function readFp8(config: ConfigReader): WeightScheme[] {
  config.idle(...NEUTRAL_KEYS, 'expert_dtype');
  config.only('fmt', ['e4m3', 'float8_e4m3fn'], 'e4m3');
  // Scales are of blocks; what is of activations changes no weight.
  config.only('weight_per_tensor', [false], false);
  config.idle('act_per_tensor');
  config.only('activation_scheme', ['dynamic', 'static'], 'dynamic');
  if (config.isNull('weight_block_size')) return [{ kind: 'fp8', scales: 'tensor' }];
  const blocks = config.numbersOr(null, 'weight_block_size');
  if (blocks === null)
    return [
      { kind: 'fp8', scales: 'block' },
      { kind: 'fp8', scales: 'tensor' },
    ];
  if (blocks.join() === FP8_BLOCKS.join()) return [{ kind: 'fp8', scales: 'block' }];
  throw config.unsupported('weight_block_size', blocks, JSON.stringify(FP8_BLOCKS));
}

/** FBGEMM's FP8: one scale for each row. */
export function readFbgemm(config: ConfigReader): WeightScheme[] {
  config.idle(...NEUTRAL_KEYS, 'activation_scale_ub');
  return [{ kind: 'fp8', scales: 'channel' }];
}

const MODELOPT_SCHEMES: Readonly<Record<string, WeightScheme>> = {
  NVFP4: { kind: 'nvfp4', matrixScale: 'multiplied' },
  // The same tensors; only the activations are not quantized.
  W4A16_NVFP4: { kind: 'nvfp4', matrixScale: 'multiplied' },
  MXFP8: { kind: 'mxfp8' },
  FP8: { kind: 'fp8', scales: 'tensor' },
  FP8_PB_WO: { kind: 'fp8', scales: 'block' },
  FP8_PER_CHANNEL_PER_TOKEN: { kind: 'fp8', scales: 'channel' },
};
const MODELOPT_ALGORITHMS = Object.keys(MODELOPT_SCHEMES);

/**
 * The schemes of ModelOpt's config (NVIDIA/Model-Optimizer), in config.json's form or in that of hf_quant_config.json. Which modules have which
 * scheme is not read from its patterns: the tensors show it.
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function readModelOpt(config: ConfigReader): WeightScheme[] {
  config.idle('ignore', 'exclude_modules', 'kv_cache_scheme', 'kv_cache_quant_algo', 'producer', 'config_groups');
  const algorithm = config.textOr('', 'quant_algo');
  const names = algorithm === 'MIXED_PRECISION' ? layerAlgorithms(config) : [readAlgorithm(config)];
  checkGroups(config, names);
  return names.flatMap((name) => MODELOPT_SCHEMES[name] ?? []);
}

/** Most layers that MIXED_PRECISION names. */
const LAYER_LIMIT = 1_000_000;

function layerAlgorithms(config: ConfigReader): string[] {
  const layers = config.within('quantized_layers');
  const names = layers?.objectKeys() ?? [];
  if (layers === null || names.length === 0 || names.length > LAYER_LIMIT) {
    throw config.corrupt('quant_algo is MIXED_PRECISION, and quantized_layers names no layer');
  }
  const found = new Set<string>();
  for (const name of names) {
    const layer = layers.within(name);
    if (layer === null) continue;
    layer.idle('awq_block_size');
    const algorithm = readAlgorithm(layer);
    checkGroups(layer, [algorithm]);
    found.add(algorithm);
  }
  return [...found];
}

/** @throws MODEL_UNSUPPORTED */
function readAlgorithm(config: ConfigReader): string {
  const algorithm = config.textOr('', 'quant_algo');
  if (MODELOPT_ALGORITHMS.includes(algorithm)) return algorithm;
  throw config.lacks(
    'quant_algo',
    algorithm,
    `the format ${algorithm === '' ? 'that names no quant_algo' : shortName(algorithm)} of ModelOpt`,
  );
}

/** Columns with one scale are those of the form. */
function checkGroups(config: ConfigReader, algorithms: readonly string[]): void {
  const isNvfp4 = algorithms.some((name) => name.endsWith('NVFP4'));
  config.only('group_size', isNvfp4 ? [16] : [16, 32, 128], 16);
}
