import { join, resolve } from 'node:path';
import { stat } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, readFailure } from '../../shared/base/files/read-file.js';
import { type Checkpoint, openCheckpoint, type OpenOptions } from '../checkpoint/checkpoint.js';
import { CHECKPOINT_FILE_ERRORS } from '../checkpoint/safetensors-file.js';
import { ggufFilesIn } from './gguf-directory.js';
import { openGguf } from './open-gguf.js';

/**
 * The GGUF file that a model's path means: the file itself, or the one in a directory without safetensors; null: the path means a checkpoint's
 * directory.
 * @throws MODEL_UNSUPPORTED if a directory has several models; STORAGE_FAILED
 */
export async function ggufPathOf(path: string): Promise<string | null> {
  const absolute = resolve(path);
  if (!(await fileExists(absolute))) return null;
  const found = await stat(absolute).catch((thrown: unknown) => {
    throw readFailure(thrown, absolute, CHECKPOINT_FILE_ERRORS);
  });
  if (!found.isDirectory()) return absolute.toLowerCase().endsWith('.gguf') ? absolute : null;
  const [first, second] = await ggufFilesIn(absolute);
  if (first === undefined) return null;
  if (second === undefined) return join(absolute, first);
  throw new OdmoeError(
    'MODEL_UNSUPPORTED',
    `${absolute}: has several GGUF models, ${first} and ${second} among them; give the path of one of the files`,
  );
}

/**
 * Opens what a pack is made from: a Hugging Face checkpoint's directory, or a GGUF file.
 * @throws as openCheckpoint and openGguf
 */
export async function openSourceCheckpoint(path: string, options: Partial<OpenOptions> = {}): Promise<Checkpoint> {
  const gguf = await ggufPathOf(path);
  return gguf === null ? openCheckpoint(path, options) : openGguf(gguf, options);
}
