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
 * Holds the authority of a cluster for this process: main while it runs, and commands while they make or restore it. Two of them would write one
 * roster. Returns the function that gives it back.
 * @throws PORT_UNAVAILABLE another process holds it; STORAGE_FULL, STORAGE_FAILED
 */
export async function holdAuthority(stateDirectory: string): Promise<() => Promise<void>> {
  const path = join(stateDirectory, LOCK_FILE);
  await makePrivateDirectory(stateDirectory);
  const file = await openLock(path);
  let isHeld = false;
  try {
    isHeld = lockFile(file.fd, false);
  } finally {
    if (!isHeld) await file.close();
  }
  if (isHeld) return () => file.close();
  throw new OdmoeError(
    'PORT_UNAVAILABLE',
    `${path} is locked: another main of this cluster runs here: stop it (or a command makes its authority now)`,
  );
}

async function openLock(path: string): Promise<FileHandle> {
  try {
    return await openCounted(path, 'a', PRIVATE_FILE);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}

/** Holds the authority of a cluster during the work. @throws PORT_UNAVAILABLE main runs, or another command does such work; what `work` throws */
export async function whileHeld<Result>(stateDirectory: string, work: () => Promise<Result>): Promise<Result> {
  const leave = await holdAuthority(stateDirectory);
  try {
    return await work();
  } finally {
    await leave();
  }
}
