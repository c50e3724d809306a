import { constants, stat, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { acquireProcessLock, type LockMessages, type ProcessLock } from '../../shared/base/files/process-lock.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { FETCH_LOCK_FILE } from '../format/pack-layout.js';

/** Opens a file that holds fetched experts, and holes where others are missing, with its full size. @throws STORAGE_FULL, STORAGE_FAILED */
export async function openSized(path: string, sizeBytes: number): Promise<FileHandle> {
  let handle: FileHandle | null = null;
  try {
    // The file is not truncated, because it may already hold other experts.
    handle = await openCounted(path, constants.O_RDWR | constants.O_CREAT);
    if ((await handle.stat()).size !== sizeBytes) await handle.truncate(sizeBytes);
    return handle;
  } catch (thrown) {
    await handle?.close();
    throw writeFailure(thrown, path, null);
  }
}

/** Null: there is no such file. @throws STORAGE_FAILED */
export async function fileSize(path: string): Promise<number | null> {
  try {
    return (await stat(path)).size;
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return null;
    throw writeFailure(thrown, path, null);
  }
}

/** The lock of the only process that fetches into the directory. `name`: the lock's file. @throws LockHeldError, STORAGE_FAILED */
export function acquireFetchLock(directory: string, name = FETCH_LOCK_FILE): Promise<ProcessLock> {
  const messages: LockMessages = {
    held: (holder, orRemove) => `${directory}: ${holder} fetches into it; give each worker its own --model${orRemove}`,
    keepsComingBack: (path) => `${path}: keeps coming back; remove it when no worker uses ${directory}`,
    takenAway: `${directory}: the lock was taken away by another process; start the worker again`,
    again: 'start the worker again',
  };
  return acquireProcessLock(join(directory, name), messages);
}
