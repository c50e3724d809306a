import type { AlignKeyValueRows } from '../../shared/rpc/messages.js';

/** Bytes of main's rows that a sequence keeps until the iteration that writes them; rows beyond it are let go. */
export const KEY_VALUE_INBOX_LIMIT_BYTES = 256 * 1024 * 1024;

/** Rows of one layer for a stretch of positions: F32 little-endian, rows x rowBytes each. */
export interface KeyValueRows {
  layer: number;
  position: number;
  rows: number;
  keys: Uint8Array;
  values: Uint8Array;
}

/** Main's keys and values that have arrived and are not yet written into shadow's cache, in order of arrival. */
export class KeyValueInbox {
  private waiting: KeyValueRows[] = [];
  private bytes = 0;

  /** rowBytes: of the keys of one position in one layer. */
  constructor(
    private readonly rowBytes: number,
    private readonly limitBytes: number = KEY_VALUE_INBOX_LIMIT_BYTES,
  ) {}

  get waitingBytes(): number {
    return this.bytes;
  }

  /** False when there is no room: the rows are not kept, which costs accuracy only. */
  add(rows: AlignKeyValueRows): boolean {
    const size = rows.keys.byteLength + rows.values.byteLength;
    if (this.bytes + size > this.limitBytes) return false;
    const { layer, position, keys, values } = rows;
    this.waiting.push({ layer, position, rows: rows.rows, keys, values });
    this.bytes += size;
    return true;
  }

  /** Removes and returns the rows of positions below `position`, oldest first; a stretch across it is cut. */
  takeBelow(position: number): KeyValueRows[] {
    const taken: KeyValueRows[] = [];
    const kept: KeyValueRows[] = [];
    for (const rows of this.waiting) {
      const count = Math.min(rows.rows, Math.max(0, position - rows.position));
      if (count > 0) taken.push(this.cut(rows, 0, count));
      if (count < rows.rows) kept.push(this.cut(rows, count, rows.rows));
    }
    this.keep(kept);
    return taken;
  }

  /** Lets go of the rows of positions from `position` on; a stretch across it is cut. */
  dropFrom(position: number): void {
    const kept: KeyValueRows[] = [];
    for (const rows of this.waiting) {
      const count = Math.min(rows.rows, Math.max(0, position - rows.position));
      if (count > 0) kept.push(this.cut(rows, 0, count));
    }
    this.keep(kept);
  }

  private keep(kept: KeyValueRows[]): void {
    this.waiting = kept;
    this.bytes = kept.reduce((sum, rows) => sum + rows.keys.byteLength + rows.values.byteLength, 0);
  }

  private cut(rows: KeyValueRows, from: number, to: number): KeyValueRows {
    if (from === 0 && to === rows.rows) return rows;
    const slice = (bytes: Uint8Array) => bytes.subarray(from * this.rowBytes, to * this.rowBytes);
    return {
      layer: rows.layer,
      position: rows.position + from,
      rows: to - from,
      keys: slice(rows.keys),
      values: slice(rows.values),
    };
  }
}
