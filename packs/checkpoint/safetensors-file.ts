import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure, refuseWrongDownloadAt, type FileErrors } from '../../shared/base/files/read-file.js';
import {
  checkHeaderLength,
  HEADER_LENGTH_BYTES,
  parseSafetensorsHeader,
  type SafetensorsTensor,
} from './safetensors-header.js';

export interface SafetensorsFile {
  path: string;
  sizeBytes: number;
  modifiedMs: number;
  /** SHA-256 of the header bytes, hexadecimal. */
  headerDigest: string;
  tensors: ReadonlyMap<string, SafetensorsTensor>;
}

export const CHECKPOINT_FILE_ERRORS: FileErrors = {
  missing: 'MODEL_NOT_FOUND',
  invalid: 'MODEL_CORRUPT',
  remedy: 'download the checkpoint again, with all its files',
};

/**
 * Reads and checks the header of a safetensors file; no tensor data is read.
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, STORAGE_FAILED
 */
export async function readSafetensorsFile(path: string): Promise<SafetensorsFile> {
  try {
    await refuseWrongDownloadAt(path, CHECKPOINT_FILE_ERRORS.invalid);
    const handle = await openFile(path);
    try {
      return await readHeader(handle, path);
    } finally {
      await handle.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}

async function readHeader(handle: FileHandle, path: string): Promise<SafetensorsFile> {
  const { size, mtimeMs } = await handle.stat();
  if (size < HEADER_LENGTH_BYTES) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${path}: ${size} bytes, too short for a safetensors file; ${CHECKPOINT_FILE_ERRORS.remedy}`,
    );
  }
  const lengthField = await readExactly(handle, path, 0, HEADER_LENGTH_BYTES);
  const headerBytes = checkHeaderLength(lengthField.readBigUInt64LE(0), size, path);
  const header = await readExactly(handle, path, HEADER_LENGTH_BYTES, headerBytes);
  return {
    path,
    sizeBytes: size,
    modifiedMs: mtimeMs,
    headerDigest: createHash('sha256').update(header).digest('hex'),
    tensors: parseSafetensorsHeader(header, size, path),
  };
}

/**
 * Reads bytes [offsetBytes, offsetBytes + sizeBytes) of an open file.
 * @throws MODEL_CORRUPT if the file ends before them: it was truncated while in use
 */
export async function readExactly(
  handle: FileHandle,
  path: string,
  offsetBytes: number,
  sizeBytes: number,
): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(sizeBytes);
  await readInto(handle, path, offsetBytes, bytes);
  return bytes;
}

/** Fills `bytes` from an open file, as readExactly. */
export async function readInto(
  handle: FileHandle,
  path: string,
  offsetBytes: number,
  bytes: Uint8Array,
): Promise<void> {
  let done = 0;
  while (done < bytes.length) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, offsetBytes + done);
    if (bytesRead === 0) {
      throw new OdmoeError(
        'MODEL_CORRUPT',
        `${path}: ends at byte ${offsetBytes + done}, expected ${bytes.length - done} more; the file was cut: ` +
          CHECKPOINT_FILE_ERRORS.remedy,
      );
    }
    done += bytesRead;
  }
}
