import { rename, rm } from 'node:fs/promises';
import { writeFailure } from './storage-error.js';
import { openCounted } from './counted-file.js';

/**
 * Replaces the file in one step: a reader, or a crash, finds the old contents or the new ones. Its directory must be there.
 * @param mode permissions of the file
 * @throws STORAGE_FULL, STORAGE_FAILED
 */
export async function replaceFile(path: string, contents: string, mode = 0o666): Promise<void> {
  const partial = `${path}.${process.pid}.partial`;
  try {
    // One that a crash left may have other permissions.
    await rm(partial, { force: true });
    const file = await openCounted(partial, 'wx', mode);
    try {
      await file.writeFile(contents);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(partial, path);
  } catch (thrown) {
    // What cannot be removed either says nothing more than what could not be written.
    await rm(partial, { force: true }).catch(() => undefined);
    throw writeFailure(thrown, path, null);
  }
}
