/** The reader of the file that engine/recording writes: states and choices that main has recorded beside a pack while it serves. */
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { lockFile } from '../../native/index.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { RECORDED_FILE } from '../../packs/format/pack-layout.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, type FileErrors, openFile, readFailure } from '../../shared/base/files/read-file.js';
import {
  answerOf,
  readRecordedHeader,
  RECORDED_HEADER_BYTES,
  RecordedRow,
  recordedRowBytes,
  ROW_HEAD_BYTES,
} from '../recording/recorded-row.js';

/** Rows whose heads are read at a time. */
const HEADS_TOGETHER = 256;

/** The first rows of the file: their answers, and a digest of all that they hold. */
export interface RecordedHeads {
  /** The number of each row's answer. */
  readonly answers: readonly number[];
  /** SHA-256 of the heads, in which checksums of the rows stand. */
  readonly digest: string;
}

export interface HeadsReading {
  readonly signal: AbortSignal;
  readonly onProgress: (rows: number) => void;
}

export class RecordedStates {
  private constructor(
    readonly path: string,
    private readonly file: FileHandle,
    private readonly pack: Pick<Pack, 'shape'>,
    private readonly errors: FileErrors,
    /** Tokens after which main records no more. */
    readonly limit: number,
  ) {}

  /**
   * Opens the file of the pack.
   * @throws USAGE where main has recorded nothing yet, PACK_CORRUPT (damaged, or of another model), MODEL_UNSUPPORTED (another version), STORAGE_FAILED
   */
  static async open(pack: Pick<Pack, 'directory' | 'manifest' | 'shape'>): Promise<RecordedStates> {
    const path = join(pack.directory, RECORDED_FILE);
    if (!(await fileExists(path))) {
      throw new OdmoeError(
        'USAGE',
        `${path}: no such file, so no main has recorded anything: set main.record_tokens (odmoe main --record-tokens 50000) where main serves this ` +
          'pack, or leave --record out',
      );
    }
    const errors: FileErrors = {
      missing: 'STORAGE_FAILED',
      invalid: 'PACK_CORRUPT',
      remedy: 'remove it, and let main record anew',
    };
    try {
      const file = await openFile(path);
      try {
        const header = new Uint8Array(RECORDED_HEADER_BYTES);
        if ((await file.stat()).size < header.length) throw notBegun(path);
        await file.read(header, 0, header.length, 0);
        return new RecordedStates(path, file, pack, errors, readRecordedHeader(header, path, pack));
      } catch (thrown) {
        await file.close();
        throw thrown;
      }
    } catch (thrown) {
      throw readFailure(thrown, path, errors);
    }
  }

  /** Whole rows that the file has now. */
  async rows(): Promise<number> {
    const { size } = await this.file.stat();
    return Math.max(0, Math.floor((size - RECORDED_HEADER_BYTES) / recordedRowBytes(this.pack.shape)));
  }

  /** True if a main has the file open to record. */
  async isWritten(): Promise<boolean> {
    // The lock ends with this open of the file, so that a main that starts now gets it.
    const file = await openFile(this.path);
    try {
      return !lockFile(file.fd, true);
    } finally {
      await file.close();
    }
  }

  /** @throws CANCELLED, PACK_CORRUPT (the file was cut), STORAGE_FAILED */
  async heads(count: number, { signal, onProgress }: HeadsReading): Promise<RecordedHeads> {
    const answers: number[] = [];
    const digest = createHash('sha256');
    for (let first = 0; first < count; first += HEADS_TOGETHER) {
      if (signal.aborted) throw new OdmoeError('CANCELLED', 'reading the recorded rows was interrupted');
      const rows = Array.from({ length: Math.min(HEADS_TOGETHER, count - first) }, (_, index) => first + index);
      for (const head of await Promise.all(rows.map((row) => this.bytesOf(row, ROW_HEAD_BYTES)))) {
        answers.push(answerOf(head));
        digest.update(head);
      }
      onProgress(first + rows.length);
    }
    return { answers, digest: digest.digest('hex') };
  }

  /** Null: the row is damaged. @throws PACK_CORRUPT (the file was cut), STORAGE_FAILED */
  async row(index: number): Promise<RecordedRow | null> {
    const row = new RecordedRow(this.pack.shape, await this.bytesOf(index, recordedRowBytes(this.pack.shape)));
    return row.isWhole ? row : null;
  }

  close(): Promise<void> {
    return this.file.close();
  }

  private async bytesOf(row: number, count: number): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = new Uint8Array(count);
    try {
      const place = RECORDED_HEADER_BYTES + row * recordedRowBytes(this.pack.shape);
      const { bytesRead } = await this.file.read(bytes, 0, count, place);
      if (bytesRead === count) return bytes;
    } catch (thrown) {
      throw readFailure(thrown, this.path, this.errors);
    }
    throw new OdmoeError('PACK_CORRUPT', `${this.path}: was cut; ${this.errors.remedy}`);
  }
}

/** A main that has made the file has still to write its header, or was killed before it did. */
function notBegun(path: string): OdmoeError {
  return new OdmoeError(
    'USAGE',
    `${path}: no main has recorded anything in it yet: run the command again when main serves this pack with main.record_tokens`,
  );
}
