import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import { EXACT_QUALITY, type Quality } from '../shared/settings/quality.js';
import { openAnyPack, openPack, type Pack } from './format/open-pack.js';
import { openModelSource } from './open-model-source.js';

/** Opens the pack that a daemon serves. For a sliced quality it needs no lossless experts. @throws MODEL_NOT_FOUND on a checkpoint or without a directory, else as openModelSource */
export async function openServedPack(directory: string | null, quality: Quality = EXACT_QUALITY): Promise<Pack> {
  if (directory === null) throw new OdmoeError('MODEL_NOT_FOUND', 'no model: give the directory of a pack by --model');
  const source = await openModelSource(directory, quality.kind === 'exact' ? openPack : openAnyPack);
  if (source.kind === 'pack') return source;
  throw new OdmoeError(
    'MODEL_NOT_FOUND',
    `${directory} is a checkpoint; daemons serve packs: make one with "odmoe pack ${directory} PACK_DIR"`,
  );
}
