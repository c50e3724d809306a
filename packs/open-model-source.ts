import { join, resolve } from 'node:path';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type { Checkpoint } from './checkpoint/checkpoint.js';
import { refuseForeignWeights } from './checkpoint/weight-files.js';
import { fileExists } from '../shared/base/files/read-file.js';
import { ggufPathOf, openSourceCheckpoint } from './gguf/open-source-checkpoint.js';
import { isPackDirectory, openPack, type Pack } from './format/open-pack.js';

/**
 * Opens a model: a pack or a Hugging Face checkpoint in a directory, or a GGUF file. It checks everything but the weights themselves.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, PACK_INCOMPLETE, PACK_CORRUPT, STORAGE_FAILED
 * @param openPackIn openAnyPack for a caller that needs no weights of experts
 */
export async function openModelSource(
  directory: string,
  openPackIn: (directory: string) => Promise<Pack> = openPack,
): Promise<Pack | Checkpoint> {
  const absolute = resolve(directory);
  if (await isPackDirectory(absolute)) return openPackIn(absolute);
  if ((await fileExists(join(absolute, 'config.json'))) || (await ggufPathOf(absolute)) !== null) {
    return openSourceCheckpoint(absolute);
  }
  await refuseForeignWeights(absolute);
  throw new OdmoeError(
    'MODEL_NOT_FOUND',
    `${absolute}: no model; give a pack (made by "odmoe pack"), a Hugging Face checkpoint with its config.json, or a GGUF file`,
  );
}
