/** A record of the decisions of a sequence's rows in each layer. A row's layers are decided in order, and a layer's rows in order. */
import { assertInvariant } from '../../base/errors/assert-invariant.js';
import type { LayerChoice } from './logical-sequence.js';

export interface DecidedLayer extends LayerChoice {
  readonly experts: readonly number[];
  /** By rank: the execution reads both slices. */
  readonly isHigh: readonly boolean[];
}

const FIRST_CAPACITY = 64;

export class DecisionRecord {
  private capacity = 0;
  private experts = new Uint16Array();
  private weights = new Float32Array();
  private high = new Uint8Array();
  private ranges = new Float64Array();
  private readonly decided: Int32Array;

  constructor(
    private readonly layers: number,
    private readonly expertsPerToken: number,
  ) {
    this.decided = new Int32Array(layers);
  }

  /** Rows that have decided in all layers. */
  get rows(): number {
    return this.rowsOf(this.layers - 1);
  }

  /** Rows that have decided in this layer. */
  rowsOf(layer: number): number {
    return this.decided[layer] ?? 0;
  }

  has(row: number, layer: number): boolean {
    return row < this.rowsOf(layer);
  }

  /** The row is the layer's next one. */
  add(row: number, layer: number, { experts, renormalizedWeights, logitsRange, isHigh }: DecidedLayer): void {
    assertInvariant(row === this.rowsOf(layer), 'the rows of a layer decide one after the other.');
    assertInvariant(layer === 0 || row < this.rowsOf(layer - 1), 'the layers of a row decide one after the other.');
    if (row >= this.capacity) this.makeRoom(Math.max(FIRST_CAPACITY, 2 * row));
    const place = row * this.layers + layer;
    const first = place * this.expertsPerToken;
    this.experts.set(experts, first);
    this.weights.set(renormalizedWeights, first);
    isHigh.forEach((high, rank) => (this.high[first + rank] = high ? 1 : 0));
    this.ranges[place] = logitsRange;
    this.decided[layer] = row + 1;
  }

  read(row: number, layer: number): DecidedLayer {
    const choice = this.choice(row, layer);
    const first = (row * this.layers + layer) * this.expertsPerToken;
    const high = this.high.subarray(first, first + this.expertsPerToken);
    return { ...choice, experts: Array.from(choice.experts), isHigh: Array.from(high, (flag) => flag === 1) };
  }

  /** The part of `read` by which a state is made again. */
  choice(row: number, layer: number): LayerChoice {
    const place = row * this.layers + layer;
    const first = place * this.expertsPerToken;
    const end = first + this.expertsPerToken;
    return {
      experts: this.experts.subarray(first, end),
      renormalizedWeights: this.weights.subarray(first, end),
      logitsRange: this.ranges[place] ?? NaN,
    };
  }

  /**
   * A record of the first `rows` rows, which have decided in all layers. It shares their memory, since what a row has decided never changes, and takes
   * a copy when a row is added to it.
   */
  part(rows: number): DecisionRecord {
    assertInvariant(rows <= this.rows, 'a part of a record has rows that have decided.');
    const part = new DecisionRecord(this.layers, this.expertsPerToken);
    part.experts = this.experts;
    part.weights = this.weights;
    part.high = this.high;
    part.ranges = this.ranges;
    part.capacity = rows;
    part.decided.fill(rows);
    return part;
  }

  /** The same record in no more memory than its rows need, for one that is retained. */
  trimmed(): DecisionRecord {
    const copy = this.part(this.rows);
    copy.makeRoom(this.rows);
    return copy;
  }

  private makeRoom(capacity: number): void {
    const places = capacity * this.layers;
    const count = places * this.expertsPerToken;
    this.capacity = capacity;
    this.experts = resized(this.experts, new Uint16Array(count));
    this.weights = resized(this.weights, new Float32Array(count));
    this.high = resized(this.high, new Uint8Array(count));
    this.ranges = resized(this.ranges, new Float64Array(places));
  }
}

type Numbers = Uint8Array | Uint16Array | Float32Array | Float64Array;

/** Fills `into` with as much of `from` as it holds. */
function resized<Array extends Numbers>(from: Array, into: Array): Array {
  into.set(from.subarray(0, into.length));
  return into;
}
