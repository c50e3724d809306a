import type { TensorRows } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS, readInto } from '../checkpoint/safetensors-file.js';
import type { TensorSource } from '../../shared/model/tensor-source.js';
import { rowBytes } from '../../shared/model/weight-dtype.js';

/** Bytes that are read, split and written at a time. Packing uses a small multiple of this memory, whatever the size of the model. */
export const READ_BYTES = 8 * 1024 * 1024;

export type OpenTensor = (source: TensorSource) => TensorRows;

/** A row range of a tensor, and its bytes in each plane. */
export interface TensorRowRange {
  firstRow: number;
  rows: number;
  planes: Uint8Array[];
}

/** Reads a tensor in row ranges of about READ_BYTES. */
export class TensorRowReader {
  private firstRow = 0;
  private readonly rangeRows: number;

  constructor(
    source: TensorSource,
    private readonly tensor: TensorRows,
    private readonly assertWanted: () => void,
  ) {
    this.rangeRows = Math.max(1, Math.floor(READ_BYTES / rowBytes(source.split, source.columns)));
  }

  /** Yields the next `rows` rows in order. @throws CANCELLED, MODEL_CORRUPT, STORAGE_FAILED */
  async *next(rows: number): AsyncGenerator<TensorRowRange> {
    for (let left = rows; left > 0;) {
      this.assertWanted();
      const count = Math.min(left, this.rangeRows);
      yield { firstRow: this.firstRow, rows: count, planes: await this.tensor.read(count) };
      this.firstRow += count;
      left -= count;
    }
  }

  dispose(): void {
    this.tensor.dispose();
  }
}

/** Reads the tensors and files of a checkpoint a little at a time, until a signal cancels it. */
export class SourceReader {
  constructor(
    private readonly openTensor: OpenTensor,
    private readonly signal: AbortSignal | null,
  ) {}

  /** Opens a tensor for reading some rows at a time; the caller disposes of it. @throws as rows */
  open(source: TensorSource): TensorRowReader {
    this.assertWanted();
    return new TensorRowReader(source, this.openTensor(source), () => this.assertWanted());
  }

  /** Yields all rows of a tensor in order. @throws CANCELLED, MODEL_CORRUPT, STORAGE_FAILED */
  async *rows(source: TensorSource): AsyncGenerator<TensorRowRange> {
    const tensor = this.open(source);
    try {
      yield* tensor.next(source.rows);
    } finally {
      tensor.dispose();
    }
  }

  /** Yields the bytes of a small file in order; what it yields is valid until the next bytes are requested. @throws as rows */
  async *fileBytes(path: string, sizeBytes: number): AsyncGenerator<Uint8Array> {
    const buffer = new Uint8Array(Math.min(sizeBytes, READ_BYTES));
    try {
      const handle = await openFile(path);
      try {
        for (let done = 0; done < sizeBytes; done += buffer.length) {
          this.assertWanted();
          const bytes = buffer.subarray(0, Math.min(buffer.length, sizeBytes - done));
          await readInto(handle, path, done, bytes);
          yield bytes;
        }
      } finally {
        await handle.close();
      }
    } catch (thrown) {
      throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
    }
  }

  /** @throws CANCELLED if the signal has aborted */
  assertWanted(): void {
    if (this.signal?.aborted !== true) return;
    throw new OdmoeError(
      'CANCELLED',
      'packing was interrupted; run the same command again to continue where it stopped',
    );
  }
}
