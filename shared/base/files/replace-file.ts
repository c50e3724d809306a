import { rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { writeFailure } from './storage-error.js';
import { openCounted } from './counted-file.js';
import { syncDirectory } from './sync-directory.js';

/**
 * Replaces the file in one step: a reader sees the old contents or the new ones, also after a crash. When this resolves, the new ones are on the
 * disk. The directory must exist. Two calls for one path must not overlap.
 * @param mode permissions of the file
 * @throws STORAGE_FULL, STORAGE_FAILED
 */
export async function replaceFile(path: string, contents: string | Uint8Array, mode = 0o666): Promise<void> {
  const partial = `${path}.${process.pid}.partial`;
  try {
    // A partial file that a crash left may have other permissions.
    await rm(partial, { force: true });
    const file = await openCounted(partial, 'wx', mode);
    try {
      await file.writeFile(contents);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(partial, path);
    await syncDirectory(dirname(path));
  } catch (thrown) {
    // If the partial file cannot be removed either, the error of the write is still the one to report.
    await rm(partial, { force: true }).catch(() => undefined);
    throw writeFailure(thrown, path, null);
  }
}
