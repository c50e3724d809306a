import { open } from 'node:fs/promises';
import { OdmoeError, type ErrorCode } from '../errors/index.js';

/** What to report about a JSON file: a checkpoint's and a pack's files differ in it. */
export interface JsonFileErrors {
  missing: ErrorCode;
  invalid: ErrorCode;
  /** Ends the message when the file is missing or not JSON: what to do. */
  remedy: string;
}

/** System error code ("ENOENT") of something thrown by node:fs; empty when it is something else. */
export function systemErrorCode(thrown: unknown): string {
  return thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : '';
}

/** A failed read of a file, as the error to throw: absent, or present and unreadable. */
export function readFailure(thrown: unknown, path: string, missing: ErrorCode, remedy: string): OdmoeError {
  if (thrown instanceof OdmoeError) return thrown;
  const code = systemErrorCode(thrown);
  if (code === 'ENOENT' || code === 'ENOTDIR') {
    return new OdmoeError(missing, `${path}: no such file; ${remedy}`, { cause: thrown });
  }
  const reason = thrown instanceof Error ? thrown.message : String(thrown);
  return new OdmoeError('STORAGE_FAILED', `${path}: cannot be read (${reason}); check its permissions and the disk`, {
    cause: thrown,
  });
}

/** Bytes of a file no larger than limitBytes; a larger one is `invalid`. */
export async function readBoundedFile(path: string, limitBytes: number, errors: JsonFileErrors): Promise<Buffer> {
  try {
    await using file = await openDisposable(path);
    const { size } = await file.handle.stat();
    if (size > limitBytes) {
      throw new OdmoeError(
        errors.invalid,
        `${path}: ${size} bytes, expected at most ${limitBytes}; ${errors.remedy}`,
      );
    }
    return await file.handle.readFile();
  } catch (thrown) {
    throw readFailure(thrown, path, errors.missing, errors.remedy);
  }
}
