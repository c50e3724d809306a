import assert from 'node:assert/strict';
import type { RouterChoice, Model, Pass, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { cacheRowFloats, type ModelShape } from '../../shared/model/model-shape.js';
import type { BeginSequence } from '../../shared/wire/messages.js';
import { plainLayer, plainShape } from './plain-shape.js';

export const SHAPE: ModelShape = plainShape({ vocabSize: 50, hiddenSize: 8, expertLayers: 2, maxPositions: 64 });

export const PASS_ROWS = 4;

/** Turns of the event loop that a format's work takes, one for each step. */
const TURNS = 6;

export async function settled(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

class ScriptedSequence implements Sequence {
  length = 0;
  /** A pass works on it. */
  inPass = false;

  constructor(
    readonly id: number,
    private readonly model: ScriptedModel,
  ) {}

  get oldestPosition(): number {
    return this.model.oldestPosition(this.length);
  }

  readRows(): Uint8Array {
    return new Uint8Array();
  }

  writeRows(layer: number, position: number, rows: number): void {
    assert.ok(!this.inPass && position + rows <= this.length, 'rows are written between passes, over what is there');
    this.model.written.push(`${this.id}:${layer}:${position}+${rows}`);
  }

  truncate(length: number): void {
    assert.ok(!this.inPass && length <= this.length && (length === 0 || length >= this.oldestPosition));
    this.model.truncated.push(`${this.id}:${length}`);
    this.length = length;
  }

  fork(length: number): ScriptedSequence {
    assert.ok(!this.inPass && length <= this.length && (length === 0 || length >= this.oldestPosition));
    const fork = this.model.createSequence();
    this.model.forked.push(`${this.id}:${length} -> ${fork.id}`);
    fork.length = length;
    return fork;
  }

  bytesToWrite(position: number, end: number): number {
    return end - position;
  }

  dispose(): void {
    this.model.disposed.push(this.id);
  }
}

/** A model whose passes wait for the test. The test chooses its experts and guesses, and it records its calls. */
export class ScriptedModel implements Model {
  constructor(readonly shape: ModelShape = SHAPE) {}

  /** Oldest position to which a sequence of that length can be cut back. */
  oldestPosition: (length: number) => number = () => 0;
  /** "id:positions" of each pass, in order. */
  readonly passes: string[] = [];
  /** Token that ran at each position of the last sequence. */
  readonly ran: number[] = [];
  readonly written: string[] = [];
  readonly truncated: string[] = [];
  /** "id:length -> id of the fork". */
  readonly forked: string[] = [];
  readonly disposed: number[] = [];
  readonly sequenceBytes = 0;
  /** While set, passes wait for release() as they begin. */
  held = false;
  /** Layer before which passes wait for release(). */
  heldLayer: number | null = null;
  failure: OdmoeError | null = null;
  /** Error with which a pass of these sequences fails; null: it does not fail. */
  failureOf: (ids: readonly number[]) => OdmoeError | null = () => null;
  cancelled = 0;
  /** The most likely token at a position. */
  guess: (position: number) => number = () => 7;
  /** Experts of a position. */
  choose = (position: number, _tokenId: number, layer: number): number[] => [
    (position + layer) % 4,
    (position + layer + 1) % 4,
  ];
  private sequences = 0;
  private waiting: (() => void)[] = [];

  async loadDense(): Promise<void> {
    return Promise.resolve();
  }

  async loadResidentExpert(): Promise<void> {
    return Promise.resolve();
  }

  residentWeights(): never {
    throw new Error('not part of this test');
  }

  createSequence(): ScriptedSequence {
    return new ScriptedSequence(this.sequences++, this);
  }

  createPass(): Pass {
    let positions: Int32Array = new Int32Array();
    let tokens: Int32Array = new Int32Array();
    let sequences: ScriptedSequence[] = [];
    let forward: { cancelled: boolean } | null = null;
    const working = async <T>(action: () => Promise<T>): Promise<T> => {
      assert.ok(sequences.length > 0 && !sequences.some(({ inPass }) => inPass), 'one call at a time');
      for (const sequence of sequences) sequence.inPass = true;
      try {
        return await action();
      } finally {
        for (const sequence of sequences) sequence.inPass = false;
      }
    };
    return {
      begin: async (given, rowSequence, rowPositions, tokenIds) => {
        sequences = given as ScriptedSequence[];
        [positions, tokens] = [rowPositions, tokenIds];
        await working(async () => {
          const runs = sequences.map(({ id }, index) => {
            const own = [...positions.keys()].filter((row) => rowSequence[row] === index);
            return `${id}:${own.map((row) => positions[row]).join(',')}`;
          });
          this.passes.push(runs.join(' '));
          positions.forEach((position, row) => this.take(sequences[rowSequence[row] ?? 0], position, tokenIds[row]));
          if (this.held) await this.wait();
          const failure = this.failure ?? this.failureOf(sequences.map(({ id }) => id));
          if (failure !== null) throw failure;
        });
      },
      attend: () => Promise.reject(new Error('a shadow does not attend layer by layer')),
      chooseAhead: () => Promise.reject(new Error('a shadow does not ask routers one by one')),
      residual: () => Promise.reject(new Error('a shadow does not ask for its residual stream')),
      combine: () => Promise.reject(new Error('a shadow does not combine')),
      forward: (onRouter) =>
        working(async () => {
          const own = { cancelled: false };
          forward = own;
          for (let layer = 0; layer < SHAPE.expertLayers; layer += 1) {
            if (this.heldLayer === layer) await this.wait();
            if (own.cancelled) throw new OdmoeError('CANCELLED', 'the pass was cancelled');
            onRouter?.(layer, this.choice(positions, tokens, layer));
          }
          forward = null;
        }),
      states: () => Promise.reject(new Error('a shadow does not ask for states')),
      logits: (rows) =>
        working(async () => {
          await Promise.resolve();
          const likeliest = [...rows].map((row) => this.guess((positions[row] ?? 0) + 1));
          return Float32Array.from(
            likeliest.flatMap((token) => Array.from({ length: SHAPE.vocabSize }, (_, id) => (id === token ? 1 : 0.5))),
          );
        }),
      cancel: () => {
        if (forward === null) return;
        forward.cancelled = true;
        this.cancelled += 1;
        this.resume();
      },
      dispose: () => undefined,
    };
  }

  dispose(): void {
    this.release();
  }

  release(): void {
    this.held = false;
    this.heldLayer = null;
    this.resume();
  }

  /** Passes that wait continue. Later passes wait again. */
  resume(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  private take(sequence: ScriptedSequence | undefined, position: number, tokenId: number | undefined): void {
    assert.equal(position, sequence?.length, 'rows continue the cache');
    if (sequence !== undefined) sequence.length = position + 1;
    this.ran[position] = tokenId ?? -1;
    this.ran.length = position + 1;
  }

  private wait(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  private choice(positions: Int32Array, tokens: Int32Array, layer: number): RouterChoice {
    const experts = [...positions].flatMap((position, row) => this.choose(position, tokens[row] ?? 0, layer));
    return { experts: Int32Array.from(experts), weights: new Float32Array(experts.length) };
  }
}

export function begin(sequence: number, changes: Partial<BeginSequence> = {}): BeginSequence {
  return {
    epoch: 1,
    sequence,
    tokenIds: [1, 2, 3],
    alignTokenPeriod: 1,
    alignKvPeriod: 0,
    promptTokens: 3,
    maxPositions: 20,
    optimistic: false,
    spread: false,
    sampling: null,
    ...changes,
  };
}

/** A message with cache rows of a layer of SHAPE. */
export function cacheRows(sequence: number, layer: number, position: number, rows: number) {
  const { mixer } = plainLayer();
  const values = new Uint8Array(rows * cacheRowFloats(mixer, SHAPE.hiddenSize) * 4);
  return { epoch: 1, sequence, layer, position, rows, values };
}
