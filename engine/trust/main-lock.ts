import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { lockFile } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { makePrivateDirectory } from './key-files.js';

/** In the state directory of the cluster. It stays there: the system takes the lock away when the process ends. */
const LOCK_FILE = 'main.lock';
const PRIVATE_FILE = 0o600;

/**
 * Holds the authority of a cluster for the main of this process, because two mains would write one roster. Returns the function that gives it back.
 * @throws PORT_UNAVAILABLE another main of the cluster runs on this host; STORAGE_FULL, STORAGE_FAILED
 */
export async function holdAuthority(stateDirectory: string): Promise<() => Promise<void>> {
  const path = join(stateDirectory, LOCK_FILE);
  await makePrivateDirectory(stateDirectory);
  const file = await openLock(path);
  let isHeld = false;
  try {
    isHeld = lockFile(file.fd);
  } finally {
    if (!isHeld) await file.close();
  }
  if (isHeld) return () => file.close();
  throw new OdmoeError('PORT_UNAVAILABLE', `${path} is locked: another main of this cluster runs here: stop it`);
}

async function openLock(path: string): Promise<FileHandle> {
  try {
    return await openCounted(path, 'a', PRIVATE_FILE);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}
