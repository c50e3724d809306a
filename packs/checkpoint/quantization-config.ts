import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type ConfigReader, type Quantization, shortJson } from '../model-config/config-reader.js';
import type { ModelFamily } from '../model-config/model-family.js';

/** Keys under which programs record that they have quantized a model. */
const KEYS = ['quantization_config', 'compression_config', 'quantization', 'quant_config'] as const;

/** Names of the quantization methods of other programs, whose forms cannot be read. */
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

/** Keys of a quantization that change no weight. */
const NEUTRAL_KEYS = ['modules_to_not_convert', 'ignored_layers', 'ignore', 'scale_fmt', 'dequantize'] as const;

const FP8_BLOCKS = JSON.stringify([128, 128]);
const WHAT_TO_DO = 'use the original checkpoint, as its makers ship it';

/**
 * The quantization of a checkpoint's weights. Only the forms in which its makers ship them can be read.
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT
 */
export function readQuantization(whole: ConfigReader, family: ModelFamily): Quantization {
  const readers = [whole, whole.within('text_config')].flatMap((config) => (config === null ? [] : [config]));
  for (const config of readers) {
    for (const key of KEYS) {
      const quantization = config.within(key);
      if (quantization !== null) return readForm(quantization, key, family);
    }
  }
  return 'none';
}

function readForm(config: ConfigReader, key: string, family: ModelFamily): Quantization {
  const supported = family.quantizations ?? [];
  const method = config.textOr(null, 'quant_method') ?? config.textOr(null, 'quant_algo');
  const found = supported.find((quantization) => quantization === method);
  const refused = (said: string, wanted: string): OdmoeError =>
    new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${config.context.path}: the checkpoint is quantized${nameOf(config, method)}: ${key}.${said}, supported is ${wanted}; ${WHAT_TO_DO}`,
    );
  if (found === undefined) {
    throw refused(`quant_method is ${shortJson(method)}`, supported.join(' or ') || `none for ${family.name}`);
  }
  config.idle(...NEUTRAL_KEYS);
  if (found !== 'fp8') return found;
  const form = config.textOr('e4m3', 'fmt');
  if (form !== 'e4m3' && form !== 'float8_e4m3fn') throw refused(`fmt is ${shortJson(form)}`, 'e4m3 or float8_e4m3fn');
  if (config.isNull('weight_block_size')) {
    throw refused('weight_block_size is null, one scale for a whole matrix', `${FP8_BLOCKS}, one for each block`);
  }
  const blocks = config.numbersOr([128, 128], 'weight_block_size');
  if (JSON.stringify(blocks) !== FP8_BLOCKS) throw refused(`weight_block_size is ${shortJson(blocks)}`, FP8_BLOCKS);
  const activations = config.textOr('dynamic', 'activation_scheme');
  if (activations !== 'dynamic') throw refused(`activation_scheme is ${shortJson(activations)}`, '"dynamic"');
  return found;
}

/** The program or the method of the quantization, in words. */
function nameOf(config: ConfigReader, method: string | null): string {
  if (method === null) return config.has('group_size') && config.has('bits') ? ' (MLX)' : '';
  const forms = ['quant_algo', 'format', 'quant_type'].flatMap((key) => config.textOr(null, key) ?? []);
  return ` (${[METHODS[method.toLowerCase()] ?? method, ...forms].join(', ')})`;
}
