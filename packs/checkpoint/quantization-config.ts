import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  type ConfigReader,
  isObject,
  QUANTIZATIONS,
  type Quantization,
  shortJson,
  shortName,
} from '../model-config/config-reader.js';
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

function readForm(config: ConfigReader, key: string, family: ModelFamily): ReadQuantization {
  const supported = family.quantizations ?? QUANTIZATIONS.filter((known) => known !== 'none' && known !== 'mxfp4');
  const method = config.textOr(null, 'quant_method') ?? config.textOr(null, 'quant_algo');
  const found = supported.find((quantization) => quantization === method);
  const refused = (said: string): OdmoeError =>
    new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${config.context.path}: the checkpoint is quantized${nameOf(config, method)}: ${said}; ${WHAT_TO_DO}`,
    );
  if (found === undefined || found === 'none') {
    throw refused(`${key}.quant_method is ${shortJson(method)}, supported is ${supported.join(' or ')}`);
  }
  try {
    return { quantization: found, schemes: READERS[found](config) };
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError) || thrown.code !== 'MODEL_UNSUPPORTED') throw thrown;
    throw refused(
      thrown.message.replace(`${config.context.path}: `, '').replace(/; choose a checkpoint without it$/, ''),
    );
  }
}

/** The program or the method of the quantization, in words. */
function nameOf(config: ConfigReader, method: string | null): string {
  if (method === null) return config.has('group_size') && config.has('bits') ? ' (MLX)' : '';
  const forms = ['quant_algo', 'format', 'quant_type'].flatMap((key) => config.textOr(null, key) ?? []);
  return ` (${[METHODS[method.toLowerCase()] ?? method, ...forms].map(shortName).join(', ')})`;
}
