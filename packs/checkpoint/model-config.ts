import { DenseModelError } from '../model-config/refused-model.js';
import { join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ConfigReader, ConfigUsage, isObject, shortName } from '../model-config/config-reader.js';
import { afmoe } from '../families/afmoe.js';
import { cohere2Moe } from '../families/cohere2-moe.js';
import { deepseekV2 } from '../families/deepseek-v2.js';
import { deepseekV3 } from '../families/deepseek-v3.js';
import { deepseekV32 } from '../families/deepseek-v32.js';
import { deepseekV4 } from '../families/deepseek-v4.js';
import { dots1 } from '../families/dots1.js';
import { ernie45Moe } from '../families/ernie4-5-moe.js';
import { exaoneMoe } from '../families/exaone-moe.js';
import { flexOlmo } from '../families/flex-olmo.js';
import { gemma4 } from '../families/gemma4.js';
import { glm4MoeLite } from '../families/glm4-moe-lite.js';
import { glm4Moe } from '../families/glm4-moe.js';
import { glm5Next } from '../families/glm5-next.js';
import { glmMoeDsa } from '../families/glm-moe-dsa.js';
import { gptOss } from '../families/gpt-oss.js';
import { graniteMoe, graniteMoeHybrid, graniteMoeShared } from '../families/granite-moe.js';
import { hunyuanMoe } from '../families/hunyuan-moe.js';
import { hyV3 } from '../families/hy-v3.js';
import { hyV4 } from '../families/hy-v4.js';
import { kimiLinear } from '../families/kimi-linear.js';
import { laguna } from '../families/laguna.js';
import { lfm2Moe } from '../families/lfm2-moe.js';
import { mimoV2Flash } from '../families/mimo-v2-flash.js';
import { minimaxM2 } from '../families/minimax-m2.js';
import { minimaxM3 } from '../families/minimax-m3.js';
import { mistral4 } from '../families/mistral4.js';
import { mixtral } from '../families/mixtral.js';
import { nemotronH } from '../families/nemotron-h.js';
import { olmoe } from '../families/olmoe.js';
import { phimoe } from '../families/phimoe.js';
import { qwen2Moe } from '../families/qwen2-moe.js';
import { qwen35Moe } from '../families/qwen3-5-moe.js';
import { qwen3Moe } from '../families/qwen3-moe.js';
import { qwen3VlMoe } from '../families/qwen3-vl-moe.js';
import { solarOpen } from '../families/solar-open.js';
import { qwen3Next } from '../families/qwen3-next.js';
import { step3p5 } from '../families/step3p5.js';
import type { ModelConfig, ModelFamily } from '../model-config/model-family.js';
import { fileExists, parseJson, readBoundedFile, readJsonFile } from '../../shared/base/files/read-file.js';
import { someEntry } from '../model-config/some-entry.js';
import { CHECKPOINT_FILE_ERRORS } from './safetensors-file.js';
import { refuseUnreadKeys } from '../model-config/unread-keys.js';
import { quantizationBeside, readQuantization, saysQuantization } from './quantization-config.js';
import { QUANTIZATION_FILES } from './weight-files.js';
import { namesExperts, unreadArchitecture } from './unread-architectures.js';

/** Every family that can be read (docs/models.md, "Adding a family"). */
export const MODEL_FAMILIES: readonly ModelFamily[] = [
  mixtral,
  qwen2Moe,
  qwen3Moe,
  olmoe,
  hunyuanMoe,
  phimoe,
  graniteMoe,
  glm4Moe,
  minimaxM2,
  minimaxM3,
  gptOss,
  deepseekV2,
  deepseekV3,
  glm4MoeLite,
  qwen3Next,
  qwen35Moe,
  gemma4,
  ernie45Moe,
  lfm2Moe,
  dots1,
  solarOpen,
  exaoneMoe,
  graniteMoeShared,
  hyV3,
  hyV4,
  qwen3VlMoe,
  afmoe,
  flexOlmo,
  laguna,
  step3p5,
  cohere2Moe,
  mistral4,
  mimoV2Flash,
  deepseekV32,
  deepseekV4,
  glmMoeDsa,
  glm5Next,
  graniteMoeHybrid,
  nemotronH,
  kimiLinear,
];

const CONFIG_LIMIT_BYTES = 16 * 1024 * 1024;

/** Options for reading a config.json. */
export interface ReadOptions {
  /** True: ropes that change with the length (longrope) use the long factors, not the short ones. */
  longContext: boolean;
}

const headSchema = z.looseObject({
  architectures: z.array(z.string()).nullish(),
  model_type: z.string().nullish(),
});

/** Most architectures that a message names. */
const NAMED_ARCHITECTURES = 4;

/** Objects and lists of a config.json stand in so many others at most; published ones have 6. */
const MOST_DEPTH = 64;

/**
 * Reads the contents of config.json by the family of its architecture.
 * @throws MODEL_CORRUPT, MODEL_UNSUPPORTED
 */
export function parseModelConfig(
  value: unknown,
  path: string,
  options: ReadOptions = { longContext: false },
): { family: ModelFamily; config: ModelConfig } {
  const parsed = headSchema.safeParse(value);
  if (!parsed.success) {
    throw new OdmoeError('MODEL_CORRUPT', `${path}: ${z.prettifyError(parsed.error)}; download config.json again`);
  }
  if (someEntry(value, ({ depth }) => depth > MOST_DEPTH)) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${path}: has objects in more than ${MOST_DEPTH} others; download config.json again`,
    );
  }
  const family = findFamily(parsed.data, path);
  const usage = new ConfigUsage();
  const unquantized = new ConfigReader(parsed.data, { path, quantization: 'none', ...options }, usage);
  const { quantization, schemes } = readQuantization(unquantized, family);
  const config = family.readConfig(new ConfigReader(parsed.data, { path, quantization, ...options }, usage));
  refuseUnreadKeys(parsed.data, usage, path, family.explained);
  return { family, config: { ...config, schemes } };
}

function findFamily(head: z.infer<typeof headSchema>, path: string): ModelFamily {
  const architectures = head.architectures ?? [];
  const modelType = head.model_type ?? null;
  const named = architectures.slice(0, NAMED_ARCHITECTURES).map(shortName);
  const unread = unreadArchitecture([...architectures, modelType ?? '']);
  if (unread !== null && 'never' in unread) {
    throw new OdmoeError('MODEL_UNSUPPORTED', `${path}: ${unread.name} cannot be run: ${unread.never}`);
  }
  const byArchitecture = MODEL_FAMILIES.filter((candidate) =>
    architectures.some((architecture) => candidate.architectures.includes(architecture)),
  );
  const byType = MODEL_FAMILIES.find((candidate) => candidate.name === modelType);
  const [family = architectures.length > 0 ? undefined : byType, other] = byArchitecture;
  const contradicted = [other, byType].find((candidate) => candidate !== undefined && candidate !== family);
  if (family !== undefined && contradicted !== undefined) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${path}: architectures ${named.join(', ')} and model_type ${shortName(modelType ?? 'null')} name two families, ${family.name} and ` +
        `${contradicted.name}; download config.json again`,
    );
  }
  if (family !== undefined) return family;
  if (unread !== null) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: ${unread.name} is not read yet: odmoe lacks ${unread.missing.join(', ')}; docs/models.md has the models that it reads`,
    );
  }
  if (architectures.length === 0 && modelType === null) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${path}: names no model, neither in architectures nor in model_type, so that it is not known how to read it; download config.json again`,
    );
  }
  const found = architectures.length > 0 ? named.join(', ') : shortName(modelType ?? '');
  if (!namesExperts(head)) {
    throw new DenseModelError(path, `${found} names no experts`);
  }
  const supported = MODEL_FAMILIES.flatMap((candidate) => candidate.architectures).join(', ');
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${path}: architecture ${found} is not supported, and it is not known here which operators it needs; supported: ${supported}`,
  );
}

/**
 * Reads config.json, and the end-of-sequence tokens that generation_config.json adds if it exists.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function readModelConfig(
  directory: string,
  options?: ReadOptions,
): Promise<{ family: ModelFamily; config: ModelConfig }> {
  const path = join(directory, 'config.json');
  const { family, config } = parseModelConfig(await readWholeConfig(path, directory), path, options);
  const more = await readGenerationEos(join(directory, 'generation_config.json'));
  const said = [...config.eosTokenIds, ...more];
  const eosTokenIds = [...new Set(said.length > 0 ? said : config.usualEosTokenIds)].sort((a, b) => a - b);
  return { family, config: { ...config, eosTokenIds } };
}

/**
 * config.json, with the quantization that a program has written into a file of its own where config.json says nothing of it.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, STORAGE_FAILED
 */
export async function readWholeConfig(path: string, directory: string): Promise<unknown> {
  const config = await readConfigFile(path);
  if (!isObject(config) || saysQuantization(config)) return config;
  for (const name of QUANTIZATION_FILES) {
    const beside = join(directory, name);
    if (!(await fileExists(beside))) continue;
    const quantization = quantizationBeside(name, await readConfigFile(beside), beside);
    if (quantization !== null) return { ...config, quantization_config: quantization };
  }
  return config;
}

/** The form in which transformers 5 writes numbers that JSON does not have. */
const NAMED_NUMBERS = /\{\s*"__float__"\s*:\s*"(-?Infinity|NaN)"\s*\}/g;
/** Matches strings, and number words that Python writes and JSON does not have. */
const PYTHON_NUMBERS = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;

/** Reads a config.json in which Python may have written Infinity and NaN, as words or as objects. Infinity becomes 1e999, which parses as infinite; NaN becomes a string. */
export async function readConfigFile(path: string): Promise<unknown> {
  const bytes = await readBoundedFile(path, CONFIG_LIMIT_BYTES, CHECKPOINT_FILE_ERRORS);
  const text = new TextDecoder('latin1').decode(bytes);
  const replaced = text.replaceAll(NAMED_NUMBERS, '$1').replaceAll(PYTHON_NUMBERS, (found) => {
    if (found.startsWith('"')) return found;
    return found === 'NaN' ? '"NaN"' : found.replace('Infinity', '1e999');
  });
  return parseJson(replaced === text ? bytes : Buffer.from(replaced, 'latin1'), path, CHECKPOINT_FILE_ERRORS);
}

async function readGenerationEos(path: string): Promise<number[]> {
  if (!(await fileExists(path))) return [];
  const value = await readJsonFile(path, CONFIG_LIMIT_BYTES, CHECKPOINT_FILE_ERRORS);
  if (!isObject(value)) {
    throw new OdmoeError('MODEL_CORRUPT', `${path}: is no JSON object; ${CHECKPOINT_FILE_ERRORS.remedy}`);
  }
  return new ConfigReader(value, { path, quantization: 'none', longContext: false }).tokenIds('eos_token_id');
}
