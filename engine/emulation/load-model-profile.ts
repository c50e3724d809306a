import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Quantization } from '../../packs/model-config/config-reader.js';
import type { ProfiledModel } from './device-profile.js';
import { mixedFormat } from './model-format.js';
import { weightMix } from './weight-mixes.js';

const MODEL_PROFILES = join(packageRoot(), 'bench', 'profiles', 'models');
const ENDING = '.json';
/** Models that are shipped in a format of which their config.json here says nothing (their `quantization_config` is left out). */
const SHIPPED_MIXES: Readonly<Record<string, string>> = { 'kimi-k2-thinking': 'INT4' };
/** The mix that counts where config.json does not say how many bytes a weight takes: most such files have 4 bits. */
const USUAL_MIX = 'INT4';
/** BF16. */
const PUBLISHED_WEIGHT_BYTES = 2;
/** A config.json is one or two pages. */
const LIMIT_BYTES = 1024 ** 2;

/** Names of the models whose sizes are part of odmoe. */
export function modelProfileNames(): string[] {
  return readdirSync(MODEL_PROFILES)
    .filter((file) => file.endsWith(ENDING))
    .map((file) => basename(file, ENDING))
    .sort();
}

/**
 * Sizes of a model by its name, with `weightBytes` for a weight that is not quantized, from its published config.json (bench/profiles/models), read
 * by the same code as checkpoints. Throws USAGE with the known names, and the errors of reading a config.json.
 */
export function loadModelProfile(name: string, weightBytes = PUBLISHED_WEIGHT_BYTES): ProfiledModel {
  const known = modelProfileNames();
  if (!known.includes(name)) {
    throw new OdmoeError('USAGE', `there is no model profile ${name}; there are ${known.join(', ')}`);
  }
  const path = join(MODEL_PROFILES, `${name}${ENDING}`);
  const { shape, tiedEmbeddings, quantization: method } = parseModelConfig(readJson(path), path).config;
  const sizes = { name, shape, tiedEmbeddings };
  return { ...sizes, weightBytes, ...methodFormat(method, sizes, weightBytes, SHIPPED_MIXES[name]) };
}

/** The format that follows from the method of a config.json alone. `mix`: what is known of the model besides. */
export function methodFormat(
  method: Quantization,
  model: { shape: ModelShape; tiedEmbeddings: boolean },
  weightBytes: number,
  mix?: string,
): Pick<ProfiledModel, 'quantization' | 'format'> {
  if (mix === undefined && (method === 'none' || method === 'mxfp4' || method === 'fp8')) {
    return { quantization: method, format: null };
  }
  if (mix === undefined && method === 'fbgemm_fp8') return { quantization: 'fp8', format: null };
  const known = requirePresent(weightMix(mix ?? USUAL_MIX), () => `${mix ?? USUAL_MIX} is a mix of weights`);
  return { quantization: 'none', format: mixedFormat(known, model, weightBytes) };
}

function readJson(path: string): unknown {
  try {
    const { size } = statSync(path);
    if (size > LIMIT_BYTES) throw new Error(`${size} bytes, and a config.json has at most ${LIMIT_BYTES}`);
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (thrown) {
    const reason = toOdmoeError(thrown).message;
    throw new OdmoeError('CONFIG_INVALID', `cannot read the model profile ${path}: ${reason}`, { cause: thrown });
  }
}
