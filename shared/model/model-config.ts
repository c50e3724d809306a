import { join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../errors/odmoe-error.js';
import { fileExists, readJsonFile } from './read-file.js';
import { mixtralFamily } from './mixtral-family.js';
import type { ModelConfig, ModelFamily } from './model-family.js';
import { CHECKPOINT_FILE_ERRORS } from './safetensors-file.js';

/** Every architecture that can be read. A new one is added here, and nowhere else. */
export const MODEL_FAMILIES: readonly ModelFamily[] = [mixtralFamily];

const CONFIG_LIMIT_BYTES = 16 * 1024 * 1024;

const headSchema = z.looseObject({
  architectures: z.array(z.string()).nullish(),
  model_type: z.string().nullish(),
  quantization_config: z.unknown().optional(),
});
const tokenId = z.int().min(0);
const generationSchema = z.looseObject({ eos_token_id: z.union([tokenId, z.array(tokenId)]).nullish() });

/**
 * What config.json says, read by the family that knows its architecture.
 * @throws MODEL_CORRUPT, MODEL_UNSUPPORTED
 */
export function parseModelConfig(value: unknown, path: string): { family: ModelFamily; config: ModelConfig } {
  const parsed = headSchema.safeParse(value);
  if (!parsed.success) {
    throw new OdmoeError('MODEL_CORRUPT', `${path}: ${z.prettifyError(parsed.error)}; download config.json again`);
  }
  const head = parsed.data;
  const architectures = head.architectures ?? [];
  const family = MODEL_FAMILIES.find((candidate) =>
    architectures.length > 0
      ? architectures.some((architecture) => candidate.architectures.includes(architecture))
      : candidate.name === head.model_type,
  );
  if (family === undefined) {
    const found = architectures.length > 0 ? architectures.join(', ') : (head.model_type ?? 'none named');
    const supported = MODEL_FAMILIES.flatMap((candidate) => candidate.architectures).join(', ');
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: architecture ${found} is not supported; supported: ${supported}`,
    );
  }
  if ((head.quantization_config ?? null) !== null) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: the checkpoint is quantized (quantization_config); use the original one in BF16, FP16 or FP32`,
    );
  }
  return { family, config: family.readConfig(parsed.data, path) };
}

/**
 * Reads config.json, and the end-of-sequence tokens that generation_config.json adds where it exists.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function readModelConfig(directory: string): Promise<{ family: ModelFamily; config: ModelConfig }> {
  const path = join(directory, 'config.json');
  const { family, config } = parseModelConfig(
    await readJsonFile(path, CONFIG_LIMIT_BYTES, CHECKPOINT_FILE_ERRORS),
    path,
  );
  const more = await readGenerationEos(join(directory, 'generation_config.json'));
  const eosTokenIds = [...new Set([...config.eosTokenIds, ...more])].sort((a, b) => a - b);
  return { family, config: { ...config, eosTokenIds } };
}

async function readGenerationEos(path: string): Promise<number[]> {
  if (!(await fileExists(path))) return [];
  const parsed = generationSchema.safeParse(await readJsonFile(path, CONFIG_LIMIT_BYTES, CHECKPOINT_FILE_ERRORS));
  if (!parsed.success) {
    throw new OdmoeError('MODEL_CORRUPT', `${path}: ${z.prettifyError(parsed.error)}; download it again`);
  }
  const eos = parsed.data.eos_token_id ?? [];
  return Array.isArray(eos) ? eos : [eos];
}
