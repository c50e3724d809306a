import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { isPackDirectory, openPack } from '../format/open-pack.js';
import type { CodecSetting } from '../format/pack-codec.js';
import { MANIFEST_FILE, PACK_FORMAT_VERSION } from '../format/pack-layout.js';
import { PackingJournal } from './packing-journal.js';
import { sourceIdentity } from './source-identity.js';

/**
 * The codec of the pack that the directory already holds, or of the one that was begun there from this checkpoint. A new measurement might
 * choose another codec, and half the work would begin again. Null if there is no such pack.
 */
export async function earlierCodec(checkpoint: Checkpoint, outputDirectory: string): Promise<CodecSetting | null> {
  if (!(await isPackDirectory(outputDirectory))) return null;
  if (await fileExists(join(outputDirectory, MANIFEST_FILE))) return codecOfPack(outputDirectory);
  const plan = await PackingJournal.planIn(outputDirectory);
  if (plan === null || plan.pack_format_version !== PACK_FORMAT_VERSION) return null;
  if (plan.source_identity !== (await sourceIdentity(checkpoint))) return null;
  return { codec: plan.codec, level: plan.codec_level };
}

async function codecOfPack(directory: string): Promise<CodecSetting | null> {
  try {
    const { manifest } = await openPack(directory);
    return { codec: manifest.codec, level: manifest.codec_level };
  } catch (thrown) {
    // Packing into the directory reports the error in the pack, and the remedy.
    if (thrown instanceof OdmoeError) return null;
    throw thrown;
  }
}
