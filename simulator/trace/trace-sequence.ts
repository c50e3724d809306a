import type { Sequence } from '../../native/index.js';
import type { ModelShape } from '../../shared/model/tensor-source.js';
import { mainToken, type TracedRow } from './trace-model.js';

const FLOAT_BYTES = 4;

/** What a traced model remembers of a sequence: how long it is, whose prompt it answers, and from where on its tokens are not main's. */
export class TraceSequence implements Sequence {
  private positions = 0;
  private prompt = 0;
  private wrongFrom = Infinity;

  constructor(private readonly shape: ModelShape) {}

  get length(): number {
    return this.positions;
  }

  /** All zero. */
  readKeyValues(_layer: number, _position: number, rows: number): { keys: Uint8Array; values: Uint8Array } {
    const bytes = rows * this.shape.keyValueHeads * this.shape.headDim * FLOAT_BYTES;
    return { keys: new Uint8Array(bytes), values: new Uint8Array(bytes) };
  }

  writeKeyValues(): void {
    // The trace knows already what aligned rows lead to.
  }

  truncate(length: number): void {
    this.positions = Math.min(this.positions, length);
    if (this.wrongFrom >= length) this.wrongFrom = Infinity;
  }

  dispose(): void {
    this.truncate(0);
  }

  /** A pass is to run this token; positions rise. */
  take(position: number, tokenId: number): TracedRow {
    if (position === 0) this.prompt = tokenId;
    if (position <= this.wrongFrom) this.wrongFrom = tokenId === mainToken(this.prompt) ? Infinity : position;
    return { prompt: this.prompt, position, onPath: position < this.wrongFrom };
  }

  /** A pass has run the position through all layers. */
  ran(position: number): void {
    this.positions = Math.max(this.positions, position + 1);
  }
}
