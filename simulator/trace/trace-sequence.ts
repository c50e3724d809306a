import type { Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { cacheRowFloats, isRecurrent, TAKEN_BACK_POSITIONS, type ModelShape } from '../../shared/model/model-shape.js';
import { mainToken, type TracedRow } from './trace-model.js';

const FLOAT_BYTES = 4;

/** The state of a sequence of a traced model: its length, its prompt, and the first position whose token is not main's. */
export class TraceSequence implements Sequence {
  private readonly recurrent: boolean;
  private positions = 0;
  /** First position of the last pass. */
  private passStart = 0;
  private prompt = 0;
  private wrongFrom = Infinity;

  constructor(private readonly shape: ModelShape) {
    this.recurrent = shape.layers.some(({ mixer }) => isRecurrent(mixer));
  }

  get length(): number {
    return this.positions;
  }

  /** A recurrent model can take back the last pass and some positions before it. */
  get oldestPosition(): number {
    return this.recurrent ? Math.max(0, this.passStart - TAKEN_BACK_POSITIONS) : 0;
  }

  /** All values are zero. */
  readRows(layer: number, _position: number, rows: number): Uint8Array {
    const ofLayer = this.shape.layers[layer];
    if (ofLayer === undefined) throw new OdmoeError('INTERNAL', `layer ${layer} of a traced model`);
    return new Uint8Array(rows * cacheRowFloats(ofLayer.mixer, this.shape.hiddenSize) * FLOAT_BYTES);
  }

  writeRows(): void {
    // The trace already includes the effect of aligned rows.
  }

  truncate(length: number): void {
    this.positions = Math.min(this.positions, length);
    this.passStart = Math.min(this.passStart, length);
    if (this.wrongFrom >= length) this.wrongFrom = Infinity;
  }

  fork(length: number): TraceSequence {
    if (length > this.positions || (length > 0 && length < this.oldestPosition)) {
      const message = `a traced sequence of ${this.positions} positions, forked at ${length}`;
      throw new OdmoeError('INTERNAL', message);
    }
    const fork = new TraceSequence(this.shape);
    fork.positions = this.positions;
    fork.passStart = this.passStart;
    fork.prompt = this.prompt;
    fork.wrongFrom = this.wrongFrom;
    fork.truncate(length);
    return fork;
  }

  bytesToWrite(): number {
    return 0;
  }

  dispose(): void {
    this.truncate(0);
  }

  /** A pass will run this token; positions rise. */
  take(position: number, tokenId: number): TracedRow {
    if (position === 0) this.prompt = tokenId;
    if (position <= this.wrongFrom) this.wrongFrom = tokenId === mainToken(this.prompt) ? Infinity : position;
    return { prompt: this.prompt, position, onPath: position < this.wrongFrom };
  }

  /** A pass that began at `start` has run the position through all layers. */
  ran(start: number, position: number): void {
    this.passStart = start;
    this.positions = Math.max(this.positions, position + 1);
  }
}
