/** Says to the processes of this machine that a pack is used, so that nobody deletes it. */
import type { FileHandle } from 'node:fs/promises';
import { lockFile } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openCounted } from '../../shared/base/files/counted-file.js';

/**
 * A daemon holds the directory of its pack as long as it runs: by a lock that ends with the process, needs no right to write, and goes together
 * with those of other daemons. Returns the function that gives it back.
 * @throws STORAGE_FAILED the pack is being deleted
 */
export async function usePack(directory: string): Promise<() => Promise<void>> {
  const { leave } = await lockDirectory(directory, true);
  if (leave !== null) return leave;
  throw new OdmoeError(
    'STORAGE_FAILED',
    `${directory}: "odmoe rm" is deleting this pack; get it again, or name another one by --model`,
  );
}

/**
 * Holds a pack that no daemon uses, so that none begins to. Returns the function that gives it back; null: a daemon of this machine uses the pack.
 */
export async function takeUnusedPack(directory: string): Promise<(() => Promise<void>) | null> {
  return (await lockDirectory(directory, false)).leave;
}

/** `leave` is null where another process holds the directory. */
async function lockDirectory(directory: string, isShared: boolean): Promise<{ leave: (() => Promise<void>) | null }> {
  const file = await openCounted(directory, 'r').catch(() => null);
  // A daemon serves a pack that it may not list, too, and one on a file system without locks: nothing protects these.
  if (file === null) return { leave: () => Promise.resolve() };
  if (!isLocked(file, isShared)) {
    await file.close();
    return { leave: null };
  }
  return { leave: () => file.close() };
}

function isLocked(file: FileHandle, isShared: boolean): boolean {
  try {
    return lockFile(file.fd, isShared);
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === 'STORAGE_FAILED') return true;
    throw thrown;
  }
}
