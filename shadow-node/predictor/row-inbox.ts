import type { AlignRows } from '../../shared/wire/messages.js';

/** Bytes of main's rows that a sequence stores until the iteration that writes them; rows beyond this limit are dropped. */
export const ROW_INBOX_LIMIT_BYTES = 256 * 1024 * 1024;

/** Rows of one layer's cache for a range of positions: F32 little-endian, with as many values each as the layer's cache has for a position. */
export interface CacheRows {
  layer: number;
  position: number;
  rows: number;
  values: Uint8Array;
}

/** Rows of main's cache that have arrived and are not yet written into shadow's cache, in order of arrival. */
export class RowInbox {
  private waiting: CacheRows[] = [];
  private bytes = 0;

  constructor(private readonly limitBytes: number = ROW_INBOX_LIMIT_BYTES) {}

  get waitingBytes(): number {
    return this.bytes;
  }

  /** Returns false if there is no room: the rows are dropped, which costs accuracy only. */
  add(rows: AlignRows): boolean {
    const size = rows.values.byteLength;
    if (this.bytes + size > this.limitBytes) return false;
    const { layer, position, values } = rows;
    this.waiting.push({ layer, position, rows: rows.rows, values });
    this.bytes += size;
    return true;
  }

  /** Removes and returns the rows of positions below `position`, oldest first; a range across it is cut. */
  takeBelow(position: number): CacheRows[] {
    const taken: CacheRows[] = [];
    const remaining: CacheRows[] = [];
    for (const rows of this.waiting) {
      const count = Math.min(rows.rows, Math.max(0, position - rows.position));
      if (count > 0) taken.push(cutRows(rows, 0, count));
      if (count < rows.rows) remaining.push(cutRows(rows, count, rows.rows));
    }
    this.keep(remaining);
    return taken;
  }

  /** Puts back rows that were taken and could not be written. */
  putBack(rows: readonly CacheRows[]): void {
    this.keep([...rows, ...this.waiting]);
  }

  /** Drops the rows of positions from `position` on; a range across it is cut. */
  dropFrom(position: number): void {
    const remaining: CacheRows[] = [];
    for (const rows of this.waiting) {
      const count = Math.min(rows.rows, Math.max(0, position - rows.position));
      if (count > 0) remaining.push(cutRows(rows, 0, count));
    }
    this.keep(remaining);
  }

  private keep(rows: CacheRows[]): void {
    this.waiting = rows;
    this.bytes = rows.reduce((sum, rows) => sum + rows.values.byteLength, 0);
  }
}

/** Rows [from, to) of a range. */
export function cutRows(rows: CacheRows, from: number, to: number): CacheRows {
  if (from === 0 && to === rows.rows) return rows;
  const rowBytes = rows.values.byteLength / rows.rows;
  return {
    layer: rows.layer,
    position: rows.position + from,
    rows: to - from,
    values: rows.values.subarray(from * rowBytes, to * rowBytes),
  };
}
