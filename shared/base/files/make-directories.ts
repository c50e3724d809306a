import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { systemErrorCode } from '../errors/system-failure.js';

/**
 * Makes the directory and each missing one above it, one by one. Does nothing if the directory exists. Node's own recursive mkdir never ends if
 * an existing directory reports that it does not exist (/proc). Throws the system's error.
 */
export async function makeDirectories(path: string, mode = 0o777): Promise<void> {
  try {
    await makeOne(path, mode);
  } catch (thrown) {
    const parent = dirname(path);
    if (systemErrorCode(thrown) !== 'ENOENT' || parent === path) throw thrown;
    await makeDirectories(parent, mode);
    await makeOne(path, mode);
  }
}

/** True if the path is a directory. */
export async function directoryExists(path: string): Promise<boolean> {
  return await stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

async function makeOne(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode });
  } catch (thrown) {
    if (!(await directoryExists(path))) throw thrown;
  }
}
