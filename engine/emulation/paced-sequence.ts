import { type Sequence, wrapperOf } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isRecurrent, TAKEN_BACK_POSITIONS, type ModelShape } from '../../shared/model/model-shape.js';
import type { PacedCache } from './paced-sequence-memory.js';

/** A sequence on a paced device. While a call of a pass is under way, it shows its state from before the call, at any progress of the real one. */
export class PacedSequence extends wrapperOf<Sequence>() {
  private calls = 0;
  private readonly recurrent: boolean;
  private lengthBefore = 0;
  private disposed = false;

  constructor(
    readonly handle: Sequence,
    private readonly shape: ModelShape,
    private readonly cache: PacedCache,
    private oldest = 0,
  ) {
    super(handle);
    this.recurrent = shape.layers.some(({ mixer }) => isRecurrent(mixer));
  }

  override get length(): number {
    return this.calls > 0 ? this.lengthBefore : this.handle.length;
  }

  /** The guaranteed position only: the real sequence's value depends on the progress of a cancelled pass. */
  override get oldestPosition(): number {
    return this.oldest;
  }

  override writeRows(layer: number, position: number, rows: number, values: Uint8Array): void {
    this.requireUnused('rows written');
    const giveBack = this.reserve(position, position + rows, layer in this.shape.layers ? [layer] : []);
    try {
      this.handle.writeRows(layer, position, rows, values);
    } catch (thrown) {
      giveBack();
      throw thrown;
    }
  }

  override truncate(length: number): void {
    this.requireUnused('truncated');
    this.handle.truncate(length);
    if (length === 0) this.oldest = 0;
  }

  override fork(length: number): PacedSequence {
    this.requireUnused('forked');
    if (length > 0 && length < this.oldest) {
      const message = `a sequence cannot be forked at ${length} positions; it can be cut back to ${this.oldest}, or to none`;
      throw new OdmoeError('INTERNAL', message);
    }
    const oldest = length === 0 ? 0 : this.oldest;
    return new PacedSequence(this.handle.fork(length), this.shape, this.cache.fork(length), oldest);
  }

  override bytesToWrite(position: number, end: number): number {
    return this.cache.bytesToWrite(position, end) ?? this.handle.bytesToWrite(position, end);
  }

  override dispose(): void {
    this.disposed = true;
    this.handle.dispose();
    this.cache.release();
  }

  /** Reserves memory to write positions [position, end) of every layer. Returns a function that gives it back. @throws DEVICE_OUT_OF_MEMORY */
  reserveRows(position: number, end: number): () => void {
    return this.reserve(position, end, [...this.shape.layers.keys()]);
  }

  /** A pass begins at `position`: from now on the sequence can be cut back only to that position or a few positions before it. */
  beginPass(position: number): void {
    if (this.recurrent) this.oldest = Math.max(this.oldest, position - TAKEN_BACK_POSITIONS);
  }

  /** A call of a pass begins to work on it. */
  beginCall(): void {
    if (this.calls === 0) this.lengthBefore = this.handle.length;
    this.calls += 1;
  }

  endCall(): void {
    this.calls -= 1;
  }

  /** The call under way was cancelled: drops the rows that the real sequence has written meanwhile. */
  rewind(): void {
    if (!this.disposed) this.handle.truncate(this.lengthBefore);
  }

  private reserve(position: number, end: number, layers: readonly number[]): () => void {
    return this.cache.reserve(position, Math.min(end, this.shape.maxPositions), layers);
  }

  private requireUnused(what: string): void {
    if (this.calls === 0) return;
    throw new OdmoeError('INTERNAL', `${what} while a pass runs on the sequence; await the pass first`);
  }
}
