import { constants } from 'node:fs/promises';
import { systemErrorCode } from '../errors/system-failure.js';
import { openCounted } from './counted-file.js';

/** Error codes of file systems that do not write directories to the disk on demand. */
const NO_SYNC_CODES: ReadonlySet<string> = new Set(['EINVAL', 'ENOTSUP', 'EOPNOTSUPP']);

/** Makes renames in the directory survive a power cut. Throws the system's error. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await openCounted(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await directory.sync().catch((thrown: unknown) => {
      if (!NO_SYNC_CODES.has(systemErrorCode(thrown))) throw thrown;
    });
  } finally {
    await directory.close();
  }
}
