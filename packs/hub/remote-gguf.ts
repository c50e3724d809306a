import { stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { requireFreeBytes, writeFailure } from '../../shared/base/files/storage-error.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import { type OpenedGguf, readGgufFiles } from '../gguf/gguf-file.js';
import { openGgufModel } from '../gguf/open-gguf.js';
import { DOWNLOADED_AT_MS, downloadFile, PART_SUFFIX } from './download-file.js';
import { ggufPartsOnHub } from './gguf-parts-on-hub.js';
import type { HubClient } from './hub-client.js';
import { type HubFile, listFilesOf } from './hub-files.js';
import type { HubSnapshot } from './hub-repository.js';
import { namingModel } from './naming-model.js';
import { RemoteBytes } from './remote-bytes.js';
import { type Arriving, takeArriving } from './remote-model.js';

/** A GGUF model on the hub, of which everything is known but its weights. */
export interface RemoteGguf extends Arriving {
  readonly form: 'gguf';
  readonly snapshot: HubSnapshot;
  /** Opened by the headers of its files; the biases of experts are not read. */
  readonly checkpoint: Checkpoint;
  /** Bytes of all its files. */
  readonly weightBytes: number;
  /**
   * Downloads and verifies all parts that are not here. Gives the path of the first one. `packBytes`: the room that is needed besides.
   * @throws STORAGE_FULL before anything is downloaded; as downloadFile
   */
  bring(packBytes: number, onBytes: (name: string, doneBytes: number) => void): Promise<string>;
}

/**
 * Reads the headers of a GGUF model on the hub, so that a model that cannot be packed is refused before it is downloaded. `directory`: where files
 * arrive; a later call goes on with what is there.
 * @param wanted path of any of its files
 * @throws as openGguf, downloadFile and HubClient.askJson; MODEL_NOT_FOUND for a file that is not there; LockHeldError
 */
export async function openRemoteGguf(
  hub: HubClient,
  snapshot: HubSnapshot,
  wanted: string,
  directory: string,
): Promise<RemoteGguf> {
  const parts = ggufPartsOnHub(snapshot.id, await listFilesOf(hub, snapshot), wanted);
  await makeDirectories(directory).catch((thrown: unknown) => {
    throw writeFailure(thrown, directory, null);
  });
  const arriving = await takeArriving(directory);
  try {
    const checkpoint = await namingModel(snapshot, directory, () => openHeaders(hub, snapshot, parts, directory));
    return {
      ...arriving,
      form: 'gguf',
      snapshot,
      checkpoint,
      weightBytes: parts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
      bring: (packBytes, onBytes) => bringParts(hub, snapshot, { parts, directory, packBytes }, onBytes),
    };
  } catch (thrown) {
    await arriving.release();
    throw thrown;
  }
}

/** Parts lie beside each other here, whatever folder of the repository they are in. */
function pathHere(directory: string, { path }: HubFile): string {
  return join(directory, basename(path));
}

async function openHeaders(
  hub: HubClient,
  snapshot: HubSnapshot,
  parts: readonly [HubFile, ...HubFile[]],
  directory: string,
): Promise<Checkpoint> {
  const files = new Map(parts.map((file) => [pathHere(directory, file), file]));
  const open = async (path: string): Promise<OpenedGguf> => {
    const file = requirePresent(files.get(path), () => `${path} is a part of the model.`);
    const source = new RemoteBytes(hub, snapshot, file);
    return { source, modifiedMs: DOWNLOADED_AT_MS, close: async () => source.close() };
  };
  const model = await readGgufFiles(pathHere(directory, parts[0]), open);
  return openGgufModel(model, { longContext: false, readsBiases: false });
}

async function bringParts(
  hub: HubClient,
  snapshot: HubSnapshot,
  wanted: { parts: readonly [HubFile, ...HubFile[]]; directory: string; packBytes: number },
  onBytes: (name: string, doneBytes: number) => void,
): Promise<string> {
  const { parts, directory, packBytes } = wanted;
  const missing: HubFile[] = [];
  for (const file of parts) {
    if (await fileExists(pathHere(directory, file))) onBytes(file.path, file.sizeBytes);
    else missing.push(file);
  }
  let neededBytes = packBytes;
  for (const file of missing) {
    const part = await stat(pathHere(directory, file) + PART_SUFFIX).catch(() => null);
    neededBytes += Math.max(0, file.sizeBytes - (part?.size ?? 0));
  }
  await requireFreeBytes(directory, neededBytes);
  for (const file of missing) {
    await downloadFile(hub, snapshot, file, pathHere(directory, file), (doneBytes) => onBytes(file.path, doneBytes));
  }
  return pathHere(directory, parts[0]);
}
