import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { corruptGguf } from './gguf-errors.js';

/** Most bytes of a header. A vocabulary of 260,000 tokens with 520,000 merges takes about 20 MB. */
export const HEADER_LIMIT_BYTES = 128 * 1024 * 1024;
/** Least bytes that are read at once, where the file has them. */
export const PIECE_BYTES = 1024 * 1024;
/** Memory that the keys may take, however small the file is. */
export const KEPT_FLOOR_BYTES = 64 * 1024;

/** The bytes of a file. The size is known; the bytes are read as they are needed. */
export interface GgufByteSource {
  sizeBytes: number;
  /** Fills `into` with the bytes from the offset on. Only bytes below sizeBytes are asked for. */
  read(offsetBytes: number, into: Uint8Array): Promise<void>;
}

/** Memory of the engine for a text beside its characters: its header, and what rounds it up. */
const TEXT_MEMORY_BYTES = 24;

/** Bytes before a text: their number. */
export const TEXT_LENGTH_BYTES = 8;

/**
 * The bytes of a header, taken from the first on. They are read in pieces, and never more than HEADER_LIMIT_BYTES. Every number of bytes is
 * checked against the file before memory is taken for it.
 */
export class GgufHeaderBytes {
  private piece = Buffer.alloc(0);
  /** Place of the piece's first byte in the file. */
  private pieceOffset = 0;
  /** Bytes of the piece that have been taken. */
  private taken = 0;
  private kept = 0;
  private readonly hash = createHash('sha256');

  constructor(
    private readonly source: GgufByteSource,
    readonly path: string,
  ) {}

  get fileBytes(): number {
    return this.source.sizeBytes;
  }

  /** Bytes taken so far: the place of the next one in the file. */
  get offsetBytes(): number {
    return this.pieceOffset + this.taken;
  }

  /** Memory that keepMemory has granted. */
  get keptBytes(): number {
    return this.kept;
  }

  /** Refuses a header that announces more bytes than the file has left. @throws MODEL_CORRUPT */
  requireLeft(sizeBytes: number, what: string): void {
    const end = this.offsetBytes + sizeBytes;
    if (end > HEADER_LIMIT_BYTES) {
      throw corruptGguf(
        this.path,
        `${what}: ${sizeBytes} bytes announced at byte ${this.offsetBytes}, expected a header of at most ${HEADER_LIMIT_BYTES} bytes`,
      );
    }
    const missing = end - this.fileBytes;
    if (missing > 0) {
      throw corruptGguf(
        this.path,
        `${what}: the file of ${this.fileBytes} bytes ends within its header, at least ${missing} bytes are missing; it was cut`,
      );
    }
  }

  /**
   * Counts memory for values before they are read: it stays below twice the file's size (KEPT_FLOOR_BYTES if that is more), and so below twice
   * HEADER_LIMIT_BYTES. A number or a pointer in a list counts 8 bytes, a text its characters and TEXT_MEMORY_BYTES. @throws MODEL_CORRUPT
   */
  keepMemory(sizeBytes: number, what: string): void {
    const limit = Math.min(2 * HEADER_LIMIT_BYTES, Math.max(2 * this.fileBytes, KEPT_FLOOR_BYTES));
    if (this.kept + sizeBytes > limit) {
      throw corruptGguf(
        this.path,
        `${what}: the keys take more than ${limit} bytes of memory, more than any real model's`,
      );
    }
    this.kept += sizeBytes;
  }

  /** The next bytes. Later calls do not change them. @throws MODEL_CORRUPT, what the source throws */
  async take(sizeBytes: number, what: string): Promise<Buffer> {
    if (this.piece.length - this.taken < sizeBytes) await this.readMore(sizeBytes, what);
    const from = this.taken;
    this.taken += sizeBytes;
    return this.piece.subarray(from, this.taken);
  }

  async takeUint32(what: string): Promise<number> {
    return (await this.take(4, what)).readUInt32LE(0);
  }

  /** A number of 64 bits that a double holds exactly. @throws MODEL_CORRUPT */
  async takeCount(what: string): Promise<number> {
    const value = (await this.take(8, what)).readBigUInt64LE(0);
    if (value <= BigInt(Number.MAX_SAFE_INTEGER)) return Number(value);
    throw corruptGguf(this.path, `${what}: the number ${value} is larger than any size of a file`);
  }

  /** A text of at most limitBytes, in UTF-8. @throws MODEL_CORRUPT */
  async takeText(limitBytes: number, what: string): Promise<string> {
    const sizeBytes = await this.takeCount(what);
    if (sizeBytes > limitBytes) {
      throw corruptGguf(this.path, `${what}: a text of ${sizeBytes} bytes, expected at most ${limitBytes}`);
    }
    const bytes = await this.take(sizeBytes, what);
    return this.decoded(bytes, 0, sizeBytes, what);
  }

  /**
   * The text that takeText would take, if the piece holds it whole; null otherwise, and nothing is taken. A vocabulary has a million texts: to
   * wait for each would take seconds.
   */
  takeReadyText(what: string): string | null {
    const { piece } = this;
    const begin = this.taken + TEXT_LENGTH_BYTES;
    if (begin > piece.length || piece.readUInt32LE(this.taken + 4) !== 0) return null;
    const end = begin + piece.readUInt32LE(this.taken);
    if (end > piece.length) return null;
    this.taken = end;
    return this.decoded(piece, begin, end, what);
  }

  private decoded(bytes: Buffer, begin: number, end: number, what: string): string {
    const text = bytes.toString('utf8', begin, end);
    // This character stands in place of wrong bytes. It may also stand in the file.
    if (text.includes('\ufffd') && !isUtf8(bytes.subarray(begin, end))) {
      throw corruptGguf(this.path, `${what}: a text that is not UTF-8`);
    }
    const characterBytes = text.length === end - begin ? 1 : 2;
    this.keepMemory(TEXT_MEMORY_BYTES + characterBytes * text.length, what);
    return text;
  }

  /** Takes all bytes before the offset, and gives the SHA-256 of all that were taken. */
  async digestTo(offsetBytes: number, what: string): Promise<string> {
    this.requireLeft(offsetBytes - this.offsetBytes, what);
    while (this.offsetBytes < offsetBytes) await this.take(Math.min(PIECE_BYTES, offsetBytes - this.offsetBytes), what);
    return this.hash.update(this.piece.subarray(0, this.taken)).digest('hex');
  }

  private async readMore(sizeBytes: number, what: string): Promise<void> {
    this.requireLeft(sizeBytes, what);
    this.hash.update(this.piece.subarray(0, this.taken));
    const rest = this.piece.subarray(this.taken);
    const next = Buffer.allocUnsafe(Math.min(Math.max(sizeBytes, PIECE_BYTES), this.fileBytes - this.offsetBytes));
    next.set(rest);
    await this.source.read(this.offsetBytes + rest.length, next.subarray(rest.length));
    this.pieceOffset = this.offsetBytes;
    this.taken = 0;
    this.piece = next;
  }
}
