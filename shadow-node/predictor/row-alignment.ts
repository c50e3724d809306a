import type { Sequence } from '../../native/index.js';
import { isRecurrent, type ModelShape } from '../../shared/model/model-shape.js';
import type { AlignRows } from '../../shared/wire/messages.js';
import { cutRows, RowInbox, type CacheRows } from './row-inbox.js';

/** Main's rows on their way into a sequence's cache, and the positions up to which they have been written there. */
export class RowAlignment {
  private readonly inbox = new RowInbox();
  /** Position below which main's rows have been written, by layer. */
  private readonly writtenBelow: number[];

  constructor(private readonly shape: ModelShape) {
    this.writtenBelow = shape.layers.map(() => 0);
  }

  /** Main's rows have been written at all positions below this one, in layers that are no recurrences: in recurrences only the latest rows are. */
  get alignedBelow(): number {
    const attended = this.writtenBelow.filter((_, layer) => !this.isRecurrent(layer));
    return attended.length === 0 ? Infinity : Math.min(...attended);
  }

  /** Returns false if there is no room for them. */
  add(rows: AlignRows): boolean {
    return this.inbox.add(rows);
  }

  /** Writes the rows that have come for positions below `below`. Returns the number of rows of the last layer. Rows that fail are tried again. */
  write(cache: Sequence, below: number): number {
    const taken = this.inbox.takeBelow(below);
    let rowsOfLastLayer = 0;
    for (const [index, rows] of taken.entries()) {
      try {
        const written = this.writeRows(cache, rows);
        if (rows.layer === this.shape.layers.length - 1) rowsOfLastLayer += written;
      } catch (error) {
        this.inbox.putBack(taken.slice(index));
        throw error;
      }
    }
    return rowsOfLastLayer;
  }

  /** Waiting rows of positions from `position` on belong to other tokens than main's. */
  dropFrom(position: number): void {
    this.inbox.dropFrom(position);
    this.cutBack(position);
  }

  /** Rows that were written from `position` on are void. */
  cutBack(position: number): void {
    this.writtenBelow.forEach((below, layer) => (this.writtenBelow[layer] = Math.min(below, position)));
  }

  /** The sequence has begun with positions of another one. */
  beginAt(alignedBelow: number): void {
    this.writtenBelow.fill(alignedBelow);
  }

  /** Writes the rows that the cache takes: of a recurrence only the latest, since older ones have gone into a state that cannot be taken apart. */
  private writeRows(cache: Sequence, given: CacheRows): number {
    const { layer } = given;
    const tooOld = this.isRecurrent(layer) ? Math.max(0, cache.oldestPosition - given.position) : 0;
    const { position, rows, values } = cutRows(given, Math.min(given.rows, tooOld), given.rows);
    if (rows > 0) cache.writeRows(layer, position, rows, values);
    const before = this.writtenBelow[layer] ?? 0;
    if (given.position <= before) this.writtenBelow[layer] = Math.max(before, given.position + given.rows);
    return rows;
  }

  private isRecurrent(layer: number): boolean {
    const mixer = this.shape.layers[layer]?.mixer;
    return mixer !== undefined && isRecurrent(mixer);
  }
}
