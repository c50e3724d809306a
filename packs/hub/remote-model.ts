import { readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { acquireProcessLock, type ProcessLock } from '../../shared/base/files/process-lock.js';
import { fileExists, readBoundedFile } from '../../shared/base/files/read-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { type Checkpoint, openCheckpoint } from '../checkpoint/checkpoint.js';
import { CHECKPOINT_FILE_ERRORS, type SafetensorsFile } from '../checkpoint/safetensors-file.js';
import { INDEX_FILE, SINGLE_FILE } from '../checkpoint/weight-files.js';
import type { ComingFiles } from '../packing/coming-files.js';
import { downloadFile } from './download-file.js';
import type { HubClient } from './hub-client.js';
import { type HubFile, listFilesOf } from './hub-files.js';
import type { HubSnapshot } from './hub-repository.js';
import { type NeededFiles, neededFiles } from './needed-files.js';
import { namingModel } from './naming-model.js';
import { readRemoteHeader } from './remote-header.js';
import { indexedNames } from './weight-index.js';

/** End of the name of the directory in which a model's files arrive, beside the directory of its pack. */
export const ARRIVING_SUFFIX = '.pulling';

const LOCK_FILE = 'pull.lock';
const INDEX_LIMIT_BYTES = 256 * 1024 * 1024;
/** Headers that are asked for at a time. */
const HEADERS_AT_ONCE = 4;

/** A directory in which files arrive. */
export interface Arriving {
  /** Deletes what has arrived: the pack is made, or it is not wanted. */
  remove(): Promise<void>;
  /** Lets another process go on with what has arrived. Where no weights have, nothing stays. */
  release(): Promise<void>;
}

/** A checkpoint on the hub, of which everything is known but its weights. */
export interface RemoteModel extends Arriving {
  readonly form: 'safetensors';
  readonly snapshot: HubSnapshot;
  /** Opened by the headers of its weight files. */
  readonly checkpoint: Checkpoint;
  /** Brings its weight files. `onBytes`: called with the bytes of one that are here by now. */
  coming(onBytes: (name: string, doneBytes: number) => void): ComingFiles;
  /** Bytes of all its weight files. */
  readonly weightBytes: number;
}

/**
 * Gets everything of a model but its weights: the list of its files, config.json and tokenizer, and the headers of its weight files. Whether it can
 * be packed, and how large it is, is known from that. `directory`: where files arrive; a later call goes on with what is there.
 * @throws as openCheckpoint, downloadFile and HubClient.askJson; LockHeldError while another process downloads into the directory
 */
export async function openRemoteModel(hub: HubClient, snapshot: HubSnapshot, directory: string): Promise<RemoteModel> {
  const needed = neededFiles(snapshot.id, await listFilesOf(hub, snapshot));
  await makeDirectories(directory).catch((thrown: unknown) => {
    throw writeFailure(thrown, directory, null);
  });
  const arriving = await takeArriving(directory);
  try {
    for (const file of needed.small) await bring(hub, snapshot, file, directory);
    const weights = await namedWeights(snapshot, needed, directory);
    const headers = await readHeaders(hub, snapshot, weights, directory);
    const checkpoint = await namingModel(snapshot, directory, () => openCheckpoint(directory, { gone: headers }));
    const files = new Map(weights.map((file) => [file.path, file]));
    return {
      ...arriving,
      form: 'safetensors',
      snapshot,
      checkpoint,
      weightBytes: weights.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0),
      coming: (onBytes) => ({
        directory: checkpoint.directory,
        headers,
        bring: async (name, unwanted) => {
          const file = files.get(name);
          if (file === undefined) throw missingWeights(snapshot, name);
          const onDone = (doneBytes: number): void => onBytes(name, doneBytes);
          await hub.until(unwanted, (client) => bring(client, snapshot, file, directory, onDone));
        },
      }),
    };
  } catch (thrown) {
    await arriving.release();
    throw thrown;
  }
}

/** Takes the lock of a directory in which files arrive. @throws LockHeldError, STORAGE_FAILED */
export async function takeArriving(directory: string): Promise<Arriving> {
  const lock = await takeArrivingLock(directory);
  let isRemoved = false;
  return {
    remove: async () => {
      await removeAtOnce(directory);
      isRemoved = true;
    },
    release: async () => {
      // A directory that cannot be removed hinders nobody.
      if (!isRemoved && !(await holdsWeights(directory))) await removeAtOnce(directory).catch(() => undefined);
      await lock.release();
    },
  };
}

/** True if bytes of weights are in a directory in which files arrive. What else arrives is small, and comes again. */
async function holdsWeights(directory: string): Promise<boolean> {
  const names = await readdir(directory, { recursive: true, encoding: 'utf8' }).catch(() => []);
  for (const name of names) {
    if (!/\.(safetensors|gguf)(\.part|\.partial)?$/.test(name)) continue;
    const found = await stat(join(directory, name)).catch(() => null);
    if (found !== null && found.size > 0) return true;
  }
  return false;
}

/** Deletes a directory of packs. It has another name before, so that no part of it counts as a pack, and another process can begin anew. */
export async function removeAtOnce(directory: string): Promise<void> {
  const gone = join(dirname(directory), `.removed-${process.pid}`);
  await rename(directory, gone);
  await rm(gone, { recursive: true });
}

/** The lock of the only process that downloads into the directory. @throws LockHeldError, STORAGE_FAILED */
export async function takeArrivingLock(directory: string): Promise<ProcessLock> {
  return acquireProcessLock(join(directory, LOCK_FILE), {
    held: (holder, orRemove) => `${directory}: ${holder} downloads into it; wait for it, or end it${orRemove}`,
    keepsComingBack: (path) => `${path}: keeps coming back; remove it when nothing downloads into ${directory}`,
    takenAway: `${directory}: the lock was taken away by another process; run the same command again`,
    again: 'run the same command again',
  });
}

/** Downloads a file unless it is there: files get their names when their bytes are verified. */
async function bring(
  hub: HubClient,
  snapshot: HubSnapshot,
  file: HubFile,
  directory: string,
  onBytes: (doneBytes: number) => void = () => undefined,
): Promise<void> {
  const path = join(directory, file.path);
  if (await fileExists(path)) onBytes(file.sizeBytes);
  else await downloadFile(hub, snapshot, file, path, onBytes);
}

/** The weight files that the index names, or the only one. */
async function namedWeights(snapshot: HubSnapshot, { weights }: NeededFiles, directory: string): Promise<HubFile[]> {
  const names = (await fileExists(join(directory, INDEX_FILE)))
    ? indexedNames(await readBoundedFile(join(directory, INDEX_FILE), INDEX_LIMIT_BYTES, CHECKPOINT_FILE_ERRORS))
    : new Set([SINGLE_FILE]);
  if (names === null) {
    throw new OdmoeError('MODEL_CORRUPT', `${snapshot.id}: ${INDEX_FILE} cannot be read; choose another repository`);
  }
  return [...names].sort().map((name) => {
    const file = weights.get(name);
    if (file === undefined || name !== basename(name)) throw missingWeights(snapshot, name);
    return file;
  });
}

function missingWeights({ id }: HubSnapshot, name: string): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `${id}: ${INDEX_FILE} names ${JSON.stringify(name)}, which the repository does not have; choose another repository or revision`,
  );
}

async function readHeaders(
  hub: HubClient,
  snapshot: HubSnapshot,
  weights: readonly HubFile[],
  directory: string,
): Promise<Map<string, SafetensorsFile>> {
  const headers = new Map<string, SafetensorsFile>();
  const waiting = [...weights];
  const readNext = async (): Promise<void> => {
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      headers.set(file.path, await readRemoteHeader(hub, snapshot, file, directory));
    }
  };
  await Promise.all(Array.from({ length: HEADERS_AT_ONCE }, readNext));
  return headers;
}
