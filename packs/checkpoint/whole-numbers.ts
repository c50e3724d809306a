import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure } from '../../shared/base/files/read-file.js';
import type { CheckpointTensor } from '../model-config/checkpoint-tensor.js';
import { CHECKPOINT_FILE_ERRORS, readInto } from './safetensors-file.js';

const READ_BYTES = 4 * 1024 * 1024;
const NUMBER_BYTES = 8;

/**
 * Refuses a tensor of whole numbers with 64 bits if one of them needs more than the low 32: a model is loaded with those alone, and would take
 * 2**32 + 3 for 3. Tensors of other types pass.
 * @throws MODEL_CORRUPT, MODEL_NOT_FOUND, STORAGE_FAILED
 */
export async function refuseWideNumbers(tensor: CheckpointTensor): Promise<void> {
  if (tensor.dtype !== 'I64') return;
  const { name, path, offsetBytes, sizeBytes } = tensor;
  const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, sizeBytes));
  try {
    const file = await openFile(path);
    try {
      for (let at = 0; at < sizeBytes; at += READ_BYTES) {
        const bytes = buffer.subarray(0, Math.min(READ_BYTES, sizeBytes - at));
        await readInto(file, path, offsetBytes + at, bytes);
        const wide = firstWide(bytes);
        if (wide !== null) {
          throw new OdmoeError(
            'MODEL_CORRUPT',
            `${path}: tensor ${name} has the number ${wide}, expected is the number of an expert; ${CHECKPOINT_FILE_ERRORS.remedy}`,
          );
        }
      }
    } finally {
      await file.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}

/** The first number that is negative or needs more than 32 bits; null: there is none. Pure. */
function firstWide(bytes: Buffer): bigint | null {
  for (let at = 0; at < bytes.length; at += NUMBER_BYTES) {
    if (bytes.readInt32LE(at + NUMBER_BYTES / 2) !== 0) return bytes.readBigInt64LE(at);
  }
  return null;
}
