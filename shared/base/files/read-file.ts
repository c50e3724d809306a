import { constants, lstat, type FileHandle } from 'node:fs/promises';
import { OdmoeError } from '../errors/odmoe-error.js';
import { fileFailure, systemErrorCode } from '../errors/system-failure.js';
import type { ErrorCode } from '../errors/registry.js';
import { openCounted } from './counted-file.js';
import { EXAMINED_BYTES, refuseWrongDownload } from './wrong-download.js';

/** Errors to report about a file that must be read whole. They differ between the files of a checkpoint and those of a pack. */
export interface FileErrors {
  missing: ErrorCode;
  invalid: ErrorCode;
  /** The remedy. It ends the message when the file is missing or invalid. */
  remedy: string;
}

/** Error codes for a path at which no file exists. */
const ABSENT: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR', 'ENAMETOOLONG']);

/** Turns a failed read of a file into the error to throw: the file is absent, or present and unreadable. */
export function readFailure(thrown: unknown, path: string, errors: FileErrors): OdmoeError {
  if (thrown instanceof OdmoeError) return thrown;
  const code = systemErrorCode(thrown);
  if (code === 'ENOENT' || code === 'ENOTDIR') {
    return new OdmoeError(errors.missing, `${path}: no such file; ${errors.remedy}`, { cause: thrown });
  }
  const reason = thrown instanceof Error ? thrown.message : String(thrown);
  const failure = fileFailure(thrown);
  const what = failure === null ? 'cannot be read' : `cannot be read: ${failure.what}`;
  const advice = failure?.advice ?? 'check its permissions and the disk';
  return new OdmoeError(failure?.code ?? 'STORAGE_FAILED', `${path}: ${what} (${reason}); ${advice}`, {
    cause: thrown,
  });
}

/**
 * Opens a file to read it. Pipes and devices are refused: an open of a pipe may wait, and a device may have no end.
 * @throws STORAGE_FAILED, the system's error
 */
export async function openFile(path: string): Promise<FileHandle> {
  // Without O_NONBLOCK, an open of a pipe without a writer would wait before stat() could show that it is a pipe.
  const handle = await openCounted(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if ((await handle.stat()).isFile()) return handle;
    throw new OdmoeError('STORAGE_FAILED', `${path}: cannot be read (not a regular file); put the file itself there`);
  } catch (thrown) {
    await handle.close();
    throw thrown;
  }
}

/** All bytes of a file. The file is opened by openFile. */
export async function readWholeFile(path: string): Promise<Buffer> {
  const handle = await openFile(path);
  try {
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

/** Bytes of a file of at most limitBytes. */
export async function readBoundedFile(path: string, limitBytes: number, errors: FileErrors): Promise<Buffer> {
  try {
    const handle = await openFile(path);
    try {
      const { size } = await handle.stat();
      if (size > limitBytes) {
        throw new OdmoeError(
          errors.invalid,
          `${path}: ${size} bytes, expected at most ${limitBytes}; ${errors.remedy}`,
        );
      }
      return await handle.readFile();
    } finally {
      await handle.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, errors);
  }
}

/** Throws an error with this code if a wrong download stands in place of the file. @throws also what openFile throws */
export async function refuseWrongDownloadAt(path: string, code: ErrorCode): Promise<void> {
  const bytes = new Uint8Array(EXAMINED_BYTES);
  const handle = await openFile(path);
  try {
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, 0);
    refuseWrongDownload(bytes.subarray(0, bytesRead), path, code);
  } finally {
    await handle.close();
  }
}

/** Bytes of a model's file of at most limitBytes. No wrong download stands in its place. */
export async function readModelFile(path: string, limitBytes: number, errors: FileErrors): Promise<Buffer> {
  const bytes = await readBoundedFile(path, limitBytes, errors);
  refuseWrongDownload(bytes, path, errors.invalid);
  return bytes;
}

/** Parses UTF-8 JSON. An error says so if a wrong download stands in place of the file. */
export function parseJson(bytes: Uint8Array, path: string, errors: FileErrors): unknown {
  refuseWrongDownload(bytes, path, errors.invalid);
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)) as unknown;
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError(errors.invalid, `${path}: not valid JSON (${reason}); ${errors.remedy}`, { cause: thrown });
  }
}

/** Reads and parses a JSON file of at most limitBytes. */
export async function readJsonFile(path: string, limitBytes: number, errors: FileErrors): Promise<unknown> {
  return parseJson(await readBoundedFile(path, limitBytes, errors), path, errors);
}

/** True if a file or directory exists at the path, readable or not. Also true if the system does not allow the check. */
export async function fileExists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    (thrown: unknown) => !ABSENT.has(systemErrorCode(thrown)),
  );
}
