import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ProfiledModel } from './device-profile.js';
import { mixedFormat } from './model-format.js';
import { weightMix } from './weight-mixes.js';

const MODEL_PROFILES = join(packageRoot(), 'bench', 'profiles', 'models');
const ENDING = '.json';
/** Models that are shipped in a format of which their config.json here says nothing (their `quantization_config` is left out). */
const SHIPPED_MIXES: Readonly<Record<string, string>> = { 'kimi-k2-thinking': 'INT4' };
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
 * Sizes of a model by its name, with `weightBytes` for a weight that is not quantized, from its published config.json (bench/profiles/models), read by the same code as checkpoints. Throws USAGE with
 * the known names, and the errors of reading a config.json.
 */
export function loadModelProfile(name: string, weightBytes = PUBLISHED_WEIGHT_BYTES): ProfiledModel {
  const known = modelProfileNames();
  if (!known.includes(name)) {
    throw new OdmoeError('USAGE', `there is no model profile ${name}; there are ${known.join(', ')}`);
  }
  const path = join(MODEL_PROFILES, `${name}${ENDING}`);
  const { shape, tiedEmbeddings, quantization } = parseModelConfig(readJson(path), path).config;
  const mix = Object.hasOwn(SHIPPED_MIXES, name) ? weightMix(SHIPPED_MIXES[name] ?? '') : null;
  const format = mix === null ? null : mixedFormat(mix, { shape, tiedEmbeddings }, weightBytes);
  return { name, shape, tiedEmbeddings, quantization, weightBytes, format };
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
