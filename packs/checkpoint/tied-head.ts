import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS, readInto } from './safetensors-file.js';
import type { CheckpointTensor } from './checkpoint-files.js';

const PIECE_BYTES = 4 * 1024 * 1024;

/**
 * Refuses an LM head beside tied embeddings that is another matrix than the embeddings: one of the two would count for nothing.
 * Stops at the first bytes that differ.
 * @throws MODEL_CORRUPT, STORAGE_FAILED
 */
export async function refuseOtherHead(head: CheckpointTensor, embedding: CheckpointTensor): Promise<void> {
  const alike = head.dtype === embedding.dtype && head.shape.join() === embedding.shape.join();
  if (alike && (await haveEqualBytes(head, embedding))) return;
  throw new OdmoeError(
    'MODEL_CORRUPT',
    `${head.path}: config.json says tie_word_embeddings true, so that ${embedding.name} is the head too, and ${head.name} has other ` +
      'values; set tie_word_embeddings to false if the model has a head of its own, else take the tensor out',
  );
}

async function haveEqualBytes(one: CheckpointTensor, other: CheckpointTensor): Promise<boolean> {
  const pieces = [one, other].map(() => Buffer.allocUnsafe(Math.min(PIECE_BYTES, one.sizeBytes)));
  const [ofOne = Buffer.alloc(0), ofOther = Buffer.alloc(0)] = pieces;
  for (let at = 0; at < one.sizeBytes; at += PIECE_BYTES) {
    const bytes = Math.min(PIECE_BYTES, one.sizeBytes - at);
    await readPiece(one, at, ofOne.subarray(0, bytes));
    await readPiece(other, at, ofOther.subarray(0, bytes));
    if (!ofOne.subarray(0, bytes).equals(ofOther.subarray(0, bytes))) return false;
  }
  return true;
}

async function readPiece({ path, offsetBytes }: CheckpointTensor, at: number, bytes: Uint8Array): Promise<void> {
  try {
    const file = await openFile(path);
    try {
      await readInto(file, path, offsetBytes + at, bytes);
    } finally {
      await file.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}
