import { statfs } from 'node:fs/promises';
import { formatByteSize } from '../text/byte-size.js';
import { OdmoeError } from '../errors/odmoe-error.js';
import { fileFailure } from '../errors/system-failure.js';

/** Bytes that may still be written to the file system of the path; null if the file system does not report it. */
export async function freeBytes(path: string): Promise<number | null> {
  const status = await statfs(path);
  return status.blocks === 0 ? null : status.bavail * status.bsize;
}

/** Turns a failed write of a file into the error to throw. `missingBytes`: bytes that are still to be written there, if known. */
export function writeFailure(thrown: unknown, path: string, missingBytes: number | null): OdmoeError {
  if (thrown instanceof OdmoeError) return thrown;
  const reason = thrown instanceof Error ? thrown.message : String(thrown);
  const failure = fileFailure(thrown);
  if (failure?.code === 'STORAGE_FULL') {
    const needed = missingBytes === null ? '' : `about ${formatByteSize(missingBytes)} more are needed there: `;
    return new OdmoeError(
      'STORAGE_FULL',
      `${path}: ${failure.what} (${reason}); ${needed}${failure.advice} and run the same command again, which continues where this one stopped`,
      { cause: thrown },
    );
  }
  const what = failure === null ? 'cannot be written' : `cannot be written: ${failure.what}`;
  const advice = failure?.advice ?? 'check that its directory is there, its permissions, and the disk';
  return new OdmoeError(failure?.code ?? 'STORAGE_FAILED', `${path}: ${what} (${reason}); ${advice}`, {
    cause: thrown,
  });
}

/** Throws if the disk has too little free space for the work. @throws STORAGE_FULL */
export async function requireFreeBytes(directory: string, neededBytes: number): Promise<void> {
  const free = await freeBytes(directory);
  if (free !== null && free < neededBytes) {
    throw new OdmoeError(
      'STORAGE_FULL',
      `${directory}: ${formatByteSize(neededBytes)} are needed and ${formatByteSize(free)} are free; ` +
        'free some space or choose another directory',
    );
  }
}
