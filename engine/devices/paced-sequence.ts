import type { Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { isRecurrent, TAKEN_BACK_POSITIONS, type ModelShape } from '../../shared/model/model-shape.js';
import type { HeldMemory } from './paced-memory.js';

/** Rows of the cache are taken from the device in blocks of so many positions (native's kAttentionChunk). */
const BLOCK_POSITIONS = 256;

/** A sequence on a paced device. While a call of a pass is under way it shows what there was before, whatever is done already. */
export class PacedSequence implements Sequence {
  /** Blocks of each layer. */
  private readonly blocks: number[];
  private calls = 0;
  private readonly recurrent: boolean;
  private lengthBefore = 0;
  private oldest = 0;
  private disposed = false;

  constructor(
    readonly handle: Sequence,
    private readonly shape: ModelShape,
    private readonly held: HeldMemory,
  ) {
    this.blocks = shape.layers.map(() => 0);
    this.recurrent = shape.layers.some(({ mixer }) => isRecurrent(mixer));
  }

  get length(): number {
    return this.calls > 0 ? this.lengthBefore : this.handle.length;
  }

  /** What is promised, and no less: what the real one still has depends on how far a cancelled pass had come. */
  get oldestPosition(): number {
    return this.oldest;
  }

  readRows(layer: number, position: number, rows: number): Uint8Array {
    return this.handle.readRows(layer, position, rows);
  }

  writeRows(layer: number, position: number, rows: number, values: Uint8Array): void {
    this.requireUnused('rows written');
    const giveBack = layer in this.blocks ? this.reserve(position + rows, [layer]) : null;
    try {
      this.handle.writeRows(layer, position, rows, values);
    } catch (thrown) {
      giveBack?.();
      throw thrown;
    }
  }

  truncate(length: number): void {
    this.requireUnused('truncated');
    this.handle.truncate(length);
    if (length === 0) this.oldest = 0;
  }

  dispose(): void {
    this.disposed = true;
    this.handle.dispose();
    this.held.letGoAll();
  }

  /** Memory for positions below `end` in every layer. Returns what gives it back. @throws DEVICE_OUT_OF_MEMORY */
  reserveRows(end: number): () => void {
    return this.reserve(end, [...this.blocks.keys()]);
  }

  /** A pass begins at `position`: from now on no more can be taken back than that and some positions before it. */
  beginPass(position: number): void {
    if (this.recurrent) this.oldest = Math.max(this.oldest, position - TAKEN_BACK_POSITIONS);
  }

  /** A call of a pass works on it from now on. */
  beginCall(): void {
    if (this.calls === 0) this.lengthBefore = this.handle.length;
    this.calls += 1;
  }

  endCall(): void {
    this.calls -= 1;
  }

  /** The call that is under way was cancelled: what the real one has written meanwhile is forgotten. */
  rewind(): void {
    if (!this.disposed) this.handle.truncate(this.lengthBefore);
  }

  private reserve(end: number, layers: readonly number[]): () => void {
    const blocks = Math.ceil(Math.min(end, this.shape.maxPositions) / BLOCK_POSITIONS);
    const before = layers.map((layer) => this.blocks[layer] ?? 0);
    const added = before.reduce((sum, count) => sum + Math.max(0, blocks - count), 0);
    this.held.hold('cacheRowBytes', added * BLOCK_POSITIONS);
    layers.forEach((layer, place) => {
      this.blocks[layer] = Math.max(before[place] ?? 0, blocks);
    });
    return () => {
      this.held.letGo('cacheRowBytes', added * BLOCK_POSITIONS);
      layers.forEach((layer, place) => {
        this.blocks[layer] = before[place] ?? 0;
      });
    };
  }

  private requireUnused(what: string): void {
    if (this.calls === 0) return;
    throw new OdmoeError('INTERNAL', `${what} while a pass runs on the sequence; await the pass first`);
  }
}
