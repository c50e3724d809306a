import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ProfiledModel } from './device-profile.js';

const MODEL_PROFILES = join(packageRoot(), 'bench', 'profiles', 'models');
const ENDING = '.json';
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
 * Sizes of a model by its name, from its published config.json (bench/profiles/models), read by the same code as checkpoints. Throws USAGE with
 * the known names, and the errors of reading a config.json.
 */
export function loadModelProfile(name: string): Omit<ProfiledModel, 'weightBytes'> {
  const known = modelProfileNames();
  if (!known.includes(name)) {
    throw new OdmoeError('USAGE', `there is no model profile ${name}; there are ${known.join(', ')}`);
  }
  const path = join(MODEL_PROFILES, `${name}${ENDING}`);
  const { shape, tiedEmbeddings, quantization } = parseModelConfig(readJson(path), path).config;
  return { name, shape, tiedEmbeddings, quantization };
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
