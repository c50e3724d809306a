import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import { writeFailure } from './storage-error.js';

/** Call this before long work whose result will be written to the path. Leaves the file as it is. Throws STORAGE_FAILED or STORAGE_FULL. */
export function requireWritableFile(path: string): void {
  const isNew = !existsSync(path);
  try {
    closeSync(openSync(path, 'a'));
    if (isNew) rmSync(path, { force: true });
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}
