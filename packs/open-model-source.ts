import { join, resolve } from 'node:path';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import { openCheckpoint, type Checkpoint } from './checkpoint/checkpoint.js';
import { refuseForeignWeights } from './checkpoint/weight-files.js';
import { fileExists } from '../shared/base/files/read-file.js';
import { isPackDirectory, openPack, type Pack } from './format/open-pack.js';

/**
 * Opens the model in a directory, a pack or a Hugging Face checkpoint, and checks everything but the weights themselves.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, PACK_INCOMPLETE, PACK_CORRUPT, STORAGE_FAILED
 * @param openPackIn openAnyPack for a caller that needs no weights of experts
 */
export async function openModelSource(
  directory: string,
  openPackIn: (directory: string) => Promise<Pack> = openPack,
): Promise<Pack | Checkpoint> {
  const absolute = resolve(directory);
  if (await isPackDirectory(absolute)) return openPackIn(absolute);
  if (await fileExists(join(absolute, 'config.json'))) return openCheckpoint(absolute);
  await refuseForeignWeights(absolute);
  throw new OdmoeError(
    'MODEL_NOT_FOUND',
    `${absolute}: no model; give a pack (made by "odmoe pack") or a Hugging Face checkpoint with its config.json`,
  );
}
