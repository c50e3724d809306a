/** A record of the decisions of a sequence's rows in each layer. A row's layers are decided in order, and a layer's rows in order. */
import { assertInvariant, requirePresent } from '../../base/errors/assert-invariant.js';
import type { LayerChoice } from './logical-sequence.js';
import { emptyPromptState, type PromptState } from './prompt-state.js';

export interface DecidedLayer extends LayerChoice {
  readonly experts: readonly number[];
  /** By rank: the execution reads both slices. */
  readonly isHigh: readonly boolean[];
}

/** Rows of a block of a record: its memory is taken block by block, as that of keys and values is. */
export const RECORD_BLOCK_ROWS = 256;

/** The layers of a model, as a record has them. */
export interface RecordShape {
  readonly layers: number;
  /** Experts of a layer. */
  readonly experts: number;
  readonly expertsPerToken: number;
}

/** Bytes of a record of so many rows, with the states of its prompt. */
export function recordBytes({ layers, experts, expertsPerToken }: RecordShape, rows: number): number {
  const rowBytes = layers * (expertsPerToken * EXECUTION_BYTES + RANGE_BYTES);
  const stateBytes = layers * (2 * experts + 2) * Float64Array.BYTES_PER_ELEMENT;
  return Math.ceil(rows / RECORD_BLOCK_ROWS) * (RECORD_BLOCK_ROWS * rowBytes + stateBytes);
}

const EXECUTION_BYTES = Uint16Array.BYTES_PER_ELEMENT + Float32Array.BYTES_PER_ELEMENT + Uint8Array.BYTES_PER_ELEMENT;
const RANGE_BYTES = Float64Array.BYTES_PER_ELEMENT;

interface Block {
  readonly experts: Uint16Array;
  readonly weights: Float32Array;
  readonly high: Uint8Array;
  readonly ranges: Float64Array;
}

export class DecisionRecord {
  private readonly blocks: Block[] = [];
  /** The states of the prompt before each block, from the second one on. */
  private readonly states: PromptState[] = [];
  /** Another record reads rows of the last block, too: this one must not write to it. */
  private sharesLast = false;
  private readonly decided: Int32Array;

  constructor(private readonly shape: RecordShape) {
    this.decided = new Int32Array(shape.layers);
  }

  /** Rows that have decided in all layers. */
  get rows(): number {
    return this.rowsOf(this.shape.layers - 1);
  }

  /** Bytes of memory. What parts of a record share counts for each of them. */
  get bytes(): number {
    return recordBytes(this.shape, this.blocks.length * RECORD_BLOCK_ROWS);
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
    const block = this.blockToWrite(row);
    const [place, first] = this.placeOf(row, layer);
    block.experts.set(experts, first);
    block.weights.set(renormalizedWeights, first);
    isHigh.forEach((high, rank) => (block.high[first + rank] = high ? 1 : 0));
    block.ranges[place] = logitsRange;
    this.decided[layer] = row + 1;
  }

  read(row: number, layer: number): DecidedLayer {
    const choice = this.choice(row, layer);
    const [, first] = this.placeOf(row, layer);
    const high = this.blockOf(row).high.subarray(first, first + this.shape.expertsPerToken);
    return { ...choice, experts: Array.from(choice.experts), isHigh: Array.from(high, (flag) => flag === 1) };
  }

  /** The part of `read` by which a state is made again. */
  choice(row: number, layer: number): LayerChoice {
    const [place, first] = this.placeOf(row, layer);
    const { experts, weights, ranges } = this.blockOf(row);
    const end = first + this.shape.expertsPerToken;
    return {
      experts: experts.subarray(first, end),
      renormalizedWeights: weights.subarray(first, end),
      logitsRange: ranges[place] ?? NaN,
    };
  }

  /** The state of the prompt before this block, which the layers fill in one after the other. `block`: at least 1. */
  stateToFill(block: number): PromptState {
    return (this.states[block - 1] ??= emptyPromptState(this.shape));
  }

  /** The last state of the prompt that is known at this row or before it, and the row before which it is. Null: none is. */
  stateBefore(row: number): { readonly row: number; readonly state: PromptState } | null {
    const block = Math.min(Math.floor(row / RECORD_BLOCK_ROWS), this.states.length);
    const state = this.states[block - 1];
    return state === undefined ? null : { row: block * RECORD_BLOCK_ROWS, state };
  }

  /**
   * A record of the first `rows` rows, which have decided in all layers. It shares their memory, since what a row has decided never changes, and takes
   * a copy of one block when a row is added to it.
   */
  part(rows: number): DecisionRecord {
    assertInvariant(rows <= this.rows, 'a part of a record has rows that have decided.');
    const part = new DecisionRecord(this.shape);
    part.blocks.push(...this.blocks.slice(0, Math.ceil(rows / RECORD_BLOCK_ROWS)));
    part.states.push(...this.states.slice(0, Math.floor(rows / RECORD_BLOCK_ROWS)));
    part.sharesLast = true;
    part.decided.fill(rows);
    return part;
  }

  private placeOf(row: number, layer: number): [place: number, first: number] {
    const place = (row % RECORD_BLOCK_ROWS) * this.shape.layers + layer;
    return [place, place * this.shape.expertsPerToken];
  }

  private blockOf(row: number): Block {
    return requirePresent(this.blocks[Math.floor(row / RECORD_BLOCK_ROWS)], 'rows that are read have decided.');
  }

  private blockToWrite(row: number): Block {
    const at = Math.floor(row / RECORD_BLOCK_ROWS);
    if (at === this.blocks.length) {
      this.blocks.push(emptyBlock(this.shape));
      this.sharesLast = false;
    } else if (this.sharesLast) {
      this.blocks[at] = copyOf(this.blockOf(row));
      this.sharesLast = false;
    }
    return this.blockOf(row);
  }
}

function emptyBlock({ layers, expertsPerToken }: RecordShape): Block {
  const places = RECORD_BLOCK_ROWS * layers;
  const count = places * expertsPerToken;
  return {
    experts: new Uint16Array(count),
    weights: new Float32Array(count),
    high: new Uint8Array(count),
    ranges: new Float64Array(places),
  };
}

function copyOf({ experts, weights, high, ranges }: Block): Block {
  return { experts: experts.slice(), weights: weights.slice(), high: high.slice(), ranges: ranges.slice() };
}
