import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  type ConfigReader,
  isObject,
  QUANTIZATIONS,
  type Quantization,
  shortJson,
  shortName,
} from '../model-config/config-reader.js';
import { MissingPartError } from '../model-config/refused-model.js';
import type { ModelFamily } from '../model-config/model-family.js';
import type { WeightScheme } from '../model-config/weight-scheme.js';
import { readCompressedTensors } from './quantized/compressed-tensors.js';
import { NEUTRAL_KEYS, readFbgemm, readFp8, readModelOpt } from './quantized/fp8-modelopt.js';
import { readAwq, readGptq } from './quantized/gptq-awq.js';
import type { QUANTIZATION_FILES } from './weight-files.js';

/** Keys under which programs record that they have quantized a model. */
const KEYS = ['quantization_config', 'compression_config', 'quantization', 'quant_config'] as const;

/** True if a config.json says how its weights are quantized. */
export function saysQuantization(values: Readonly<Record<string, unknown>>): boolean {
  const inner = values['text_config'];
  return [values, isObject(inner) ? inner : {}].some((object) => KEYS.some((key) => isObject(object[key])));
}

/** The method of a file beside config.json that does not name it. */
const METHOD_OF_FILE: Readonly<Record<(typeof QUANTIZATION_FILES)[number], Quantization>> = {
  'hf_quant_config.json': 'modelopt',
  'quantize_config.json': 'gptq',
  'quant_config.json': 'awq',
};

/**
 * Reads a file beside config.json, in the form of config.json's `quantization_config`; null: the file says that the weights are not quantized.
 * @throws MODEL_CORRUPT
 */
export function quantizationBeside(
  name: (typeof QUANTIZATION_FILES)[number],
  value: unknown,
  path: string,
): Readonly<Record<string, unknown>> | null {
  const said = name === 'hf_quant_config.json' && isObject(value) ? value['quantization'] : value;
  if (!isObject(said)) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${path}: has no object with the quantization; download it again, or take it away if the weights are not quantized`,
    );
  }
  // The one of an original checkpoint says null.
  if (name === 'hf_quant_config.json' && (said['quant_algo'] ?? null) === null) return null;
  return { quant_method: METHOD_OF_FILE[name], ...said };
}

/** Names of the quantization methods of other programs. */
const METHODS: Readonly<Record<string, string>> = {
  gptq: 'GPTQ',
  awq: 'AWQ',
  bitsandbytes: 'bitsandbytes',
  'compressed-tensors': 'compressed-tensors',
  modelopt: "NVIDIA's ModelOpt",
  modelopt_fp4: "NVIDIA's ModelOpt (NVFP4)",
  nvfp4: 'NVFP4',
  fp8: 'FP8',
  mxfp4: 'MXFP4',
  fbgemm_fp8: 'FP8 with one scale for each row (FBGEMM)',
  'auto-round': 'AutoRound',
};

const READERS: Readonly<Record<Exclude<Quantization, 'none'>, (config: ConfigReader) => WeightScheme[]>> = {
  fp8: readFp8,
  mxfp4: (config) => {
    config.idle(...NEUTRAL_KEYS);
    return [];
  },
  'compressed-tensors': readCompressedTensors,
  modelopt: readModelOpt,
  fbgemm_fp8: readFbgemm,
  gptq: readGptq,
  awq: readAwq,
};

/** The algorithm of the experts alone: NVIDIA's DeepSeek-V4 has them in NVFP4 beside FP8. */
const EXPERT_ALGORITHM = 'moe_quant_algo';

const WHAT_TO_DO = 'use a checkpoint in one of these forms, or the original one, as its makers ship it';

/** The quantization of the weights by config.json. */
export interface ReadQuantization {
  quantization: Quantization;
  /** The ways in which modules are quantized; the tensors show which module has which. */
  schemes: readonly WeightScheme[];
}

/**
 * The quantization of a checkpoint's weights.
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function readQuantization(whole: ConfigReader, family: ModelFamily): ReadQuantization {
  const readers = [whole, whole.within('text_config')].flatMap((config) => (config === null ? [] : [config]));
  for (const config of readers) {
    for (const key of KEYS) {
      const quantization = config.within(key);
      if (quantization !== null) return readForm(quantization, key, family);
    }
  }
  return { quantization: 'none', schemes: [] };
}

function readForm(outer: ConfigReader, key: string, family: ModelFamily): ReadQuantization {
  // ModelOpt's own object may stand in that of config.json.
  const config = outer.beside(outer.within('quantization'));
  const supported = family.quantizations ?? QUANTIZATIONS.filter((known) => known !== 'none' && known !== 'mxfp4');
  const method = config.textOr(null, 'quant_method') ?? config.textOr(null, 'quant_algo');
  const name = nameOf(config, method);
  const refused = (said: string, part = `the format ${name}`): MissingPartError =>
    new MissingPartError(`${config.context.path}: the checkpoint is quantized (${name}): ${said}; ${WHAT_TO_DO}`, part);
  const found = supported.find((quantization) => quantization === method);
  if (found === undefined || found === 'none') {
    throw refused(`${key}.quant_method is ${shortJson(method)}, supported is ${supported.join(' or ')}`);
  }
  const algorithms = otherAlgorithms(config, found);
  if (algorithms.length > 0) {
    throw refused(
      `${algorithms.map(([said, value]) => `${key}.${said} is ${shortJson(value)}`).join(', ')}, which is read only as quant_algo of ModelOpt`,
      `the format ${algorithms.map(([, value]) => shortName(value)).join(' and ')} beside ${METHODS[found] ?? found}`,
    );
  }
  try {
    return { quantization: found, schemes: READERS[found](config) };
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError) || thrown.code !== 'MODEL_UNSUPPORTED') throw thrown;
    const said = thrown.message
      .replace(`${config.context.path}: `, '')
      .replace(/; (choose a checkpoint without it|docs\/models\.md has the models that it reads)$/, '');
    throw refused(said, thrown instanceof MissingPartError ? thrown.part : `the format ${name}: ${said}`);
  }
}

/** Algorithms that the method does not have, by which some modules are quantized, with their keys. */
function otherAlgorithms(config: ConfigReader, method: Quantization): [key: string, value: string][] {
  const keys = method === 'modelopt' ? [EXPERT_ALGORITHM] : [EXPERT_ALGORITHM, 'quant_algo'];
  return keys.flatMap((key) => {
    const value = config.textOr(null, key);
    return value === null || value === 'MIXED_PRECISION' ? [] : [[key, value]];
  });
}

/** The program or the method of the quantization, in words. */
function nameOf(config: ConfigReader, method: string | null): string {
  if (method === null) return config.has('group_size') && config.has('bits') ? 'MLX' : 'that names no quant_method';
  const keys = ['quant_algo', EXPERT_ALGORITHM, 'format', 'quant_type'];
  const forms = keys.flatMap((key) => config.textOr(null, key) ?? []);
  return [...new Set([METHODS[method.toLowerCase()] ?? method, ...forms])].map(shortName).join(', ');
}
