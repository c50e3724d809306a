import type { FileHandle } from 'node:fs/promises';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { CHECKPOINT_FILE_ERRORS, readInto } from '../../shared/model/safetensors-file.js';
import { openFile, readFailure } from '../../shared/model/read-file.js';

/** Bytes read, split and written at a time; packing holds a small multiple of it, whatever the size of the model. */
export const PIECE_BYTES = 8 * 1024 * 1024;

/** Reads stretches of a checkpoint's files piece by piece, keeping one file open. */
export class TensorReader {
  private path = '';
  private handle: FileHandle | null = null;
  private readonly piece = new Uint8Array(PIECE_BYTES);

  /** `signal` is looked at before each piece. */
  constructor(private readonly signal: AbortSignal | null) {}

  /**
   * Yields the bytes in order, in pieces of at most PIECE_BYTES (a multiple of every value's size).
   * A piece is valid until the next is asked for.
   * @throws CANCELLED, MODEL_CORRUPT, STORAGE_FAILED
   */
  async *pieces(path: string, offsetBytes: number, sizeBytes: number): AsyncGenerator<Uint8Array> {
    for (let done = 0; done < sizeBytes; done += PIECE_BYTES) {
      this.assertWanted();
      const bytes = this.piece.subarray(0, Math.min(PIECE_BYTES, sizeBytes - done));
      try {
        await readInto(await this.fileAt(path), path, offsetBytes + done, bytes);
      } catch (thrown) {
        throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
      }
      yield bytes;
    }
  }

  /** @throws CANCELLED once the signal says so */
  assertWanted(): void {
    if (this.signal?.aborted !== true) return;
    throw new OdmoeError(
      'CANCELLED',
      'packing was interrupted; run the same command again to continue where it stopped',
    );
  }

  private async fileAt(path: string): Promise<FileHandle> {
    if (this.handle !== null && this.path === path) return this.handle;
    await this.close();
    this.handle = await openFile(path);
    this.path = path;
    return this.handle;
  }

  async close(): Promise<void> {
    const { handle } = this;
    this.handle = null;
    await handle?.close();
  }
}
