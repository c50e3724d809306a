import type { ConfigReader } from '../../model-config/config-reader.js';
import type { WeightScheme } from '../../model-config/weight-scheme.js';
import { groupColumns } from './group-columns.js';

/** Keys that change no weight, or repeat what the tensors show. */
const NEUTRAL_KEYS = [
  'ignore',
  'kv_cache_scheme',
  'quantization_status',
  'global_compression_ratio',
  'version',
  'transform_config',
  'sparsity_config',
] as const;
const NEUTRAL_WEIGHT_KEYS = ['observer', 'observer_kwargs', 'scale_dtype', 'zp_dtype'] as const;

const FORMATS = [
  'pack-quantized',
  'mxfp4-pack-quantized',
  'nvfp4-pack-quantized',
  'float-quantized',
  'mxfp8-quantized',
  'int-quantized',
  'naive-quantized',
] as const;
type Format = (typeof FORMATS)[number];

/** Most groups of modules. */
const GROUP_LIMIT = 1000;

/**
 * The schemes of compressed-tensors' config (vllm-project/compressed-tensors, QuantizationConfig). Which modules have which scheme is not read from
 * the patterns: the tensors show it.
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function readCompressedTensors(config: ConfigReader): WeightScheme[] {
  refuseTransforms(config);
  config.idle(...NEUTRAL_KEYS);
  const outer = config.only('format', [...FORMATS, 'mixed-precision', 'dense'], 'mixed-precision');
  const groups = config.within('config_groups');
  if (groups === null) throw config.corrupt('quantization_config has no config_groups');
  const names = groups.objectKeys();
  if (names.length === 0 || names.length > GROUP_LIMIT) {
    throw config.corrupt(`quantization_config.config_groups has ${names.length} groups`);
  }
  return names.flatMap((name) => {
    const group = groups.within(name);
    return group === null ? [] : readGroup(group, outer);
  });
}

/** Weights that are rotated, or stored without their zeros, are other weights than those that are computed with. */
function refuseTransforms(config: ConfigReader): void {
  const transforms = config.within('transform_config');
  if (transforms !== null) transforms.noObjects('no transforms of weights');
  const sparsity = config.within('sparsity_config');
  if (sparsity !== null) sparsity.only('format', ['dense'], 'dense');
  sparsity?.idle('targets', 'ignore', 'global_sparsity', 'registry_requires_subclass', 'sparsity_structure');
}

function readGroup(group: ConfigReader, outer: Format | 'mixed-precision' | 'dense'): WeightScheme[] {
  group.textsOr(null, 'targets');
  group.idle('input_activations', 'output_activations', 'targets');
  const weights = group.within('weights');
  if (weights === null) return [];
  weights.idle(...NEUTRAL_WEIGHT_KEYS);
  weights.only('dynamic', [false], false);
  const format = group.only(
    'format',
    FORMATS,
    outer === 'mixed-precision' || outer === 'dense' ? 'naive-quantized' : outer,
  );
  const type = weights.only('type', ['int', 'float'], 'int');
  if (type === 'int') return [readWhole(weights, format)];
  return [readFloat(weights, format)];
}

function readWhole(weights: ConfigReader, format: Format): WeightScheme {
  weights.idle('block_structure');
  const bits = weights.only('num_bits', [4, 8], 8);
  const symmetric = weights.flagOr(true, 'symmetric');
  if (format !== 'pack-quantized') {
    weights.only('num_bits', [8], 8);
    weights.only('symmetric', [true], true);
    weights.idle('group_size', 'actorder');
    return { kind: 'int8', scales: weights.only('strategy', ['channel', 'tensor'], 'tensor') };
  }
  const strategy = weights.only('strategy', ['group', 'channel'], 'group');
  // "weight" and "static" reorder the columns only while a model is quantized.
  const actorder = weights.textOr(null, 'actorder');
  if (actorder !== null) weights.only('actorder', ['group', 'dynamic', 'weight', 'static'], 'static');
  const reordered = actorder === 'group' || actorder === 'dynamic';
  if (strategy === 'channel') weights.idle('group_size');
  const group = strategy === 'channel' ? 0 : groupColumns(weights);
  return { kind: 'packed', bits, group, symmetric, reordered: reordered && group !== 0 };
}

function readFloat(weights: ConfigReader, format: Format): WeightScheme {
  weights.only('symmetric', [true], true);
  weights.idle('actorder');
  if (format === 'mxfp4-pack-quantized' || format === 'mxfp8-quantized') {
    weights.only('group_size', [32], 32);
    weights.only('strategy', ['group'], 'group');
    weights.only('num_bits', [format === 'mxfp8-quantized' ? 8 : 4], 4);
    weights.idle('block_structure');
    return { kind: format === 'mxfp8-quantized' ? 'mxfp8' : 'mxfp4' };
  }
  if (format === 'nvfp4-pack-quantized') {
    weights.only('group_size', [16], 16);
    weights.only('strategy', ['tensor_group', 'group'], 'tensor_group');
    weights.only('num_bits', [4], 4);
    weights.idle('block_structure');
    return { kind: 'nvfp4', matrixScale: 'divided' };
  }
  weights.only('num_bits', [8], 8);
  weights.idle('group_size');
  const scales = weights.only('strategy', ['tensor', 'channel', 'block'], 'tensor');
  const blocks = weights.numbersOr([128, 128], 'block_structure');
  if (scales === 'block' && blocks.join() !== '128,128') {
    throw weights.unsupported('block_structure', blocks, '[128,128]');
  }
  return { kind: 'fp8', scales };
}
