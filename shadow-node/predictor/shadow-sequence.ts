import type { GateChoice, Model, Pass, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import type { ModelShape } from '../../shared/model/tensor-source.js';
import type { AlignKeyValueRows, BeginSequence } from '../../shared/rpc/messages.js';
import { resolveSampling, sampleToken } from '../../shared/sampling/index.js';
import {
  keyValuesDueBelow,
  nextStep,
  takesMainToken,
  type AlignmentPeriods,
  type AlignmentStep,
  type SequenceProgress,
} from './alignment.js';
import { KeyValueInbox } from './key-value-inbox.js';

/** Shadow's own tokens: whatever main samples with, the likeliest is the best guess at it. */
const GREEDY = resolveSampling(null, () => 0);

export type SequenceStart = Omit<BeginSequence, 'epoch' | 'sequence'>;

/** One layer's experts for one position, in the order of the gate's ranks. */
export interface LayerPrediction {
  position: number;
  layer: number;
  experts: number[];
}

/** What a sequence has taken over from main so far. */
export interface AlignmentCounts {
  tokens: number;
  keyValueRows: number;
  droppedKeyValueRows: number;
}

/** One answer that main is decoding, as the shadow model lives it. Knows nothing of the network. */
export class ShadowSequence {
  private readonly shape: ModelShape;
  readonly counts: AlignmentCounts = { tokens: 0, keyValueRows: 0, droppedKeyValueRows: 0 };
  private readonly cache: Sequence;
  private readonly periods: AlignmentPeriods;
  private readonly inbox: KeyValueInbox;
  private readonly mainTokens: number[];
  private ownToken: number | null = null;
  private nextPosition = 0;
  private disposed = false;

  /** Throws PROTOCOL_VIOLATION when the start does not fit the model. */
  constructor(
    model: Model,
    private readonly start: SequenceStart,
  ) {
    const { shape } = model;
    checkStart(start, shape);
    this.shape = shape;
    this.periods = { token: start.alignTokenPeriod, keyValue: start.alignKvPeriod };
    this.mainTokens = [...start.tokenIds];
    this.inbox = new KeyValueInbox(keyValueRowBytes(shape));
    this.cache = model.createSequence();
  }

  /** The last position whose token main has told: what main is running now. */
  get announcedPosition(): number {
    return this.mainTokens.length - 1;
  }

  /** Main's token at `position`. PROTOCOL_VIOLATION when it leaves a gap or is no token of the model. */
  announceToken(position: number, tokenId: number): void {
    if (position !== this.mainTokens.length || position >= this.start.maxPositions || !this.isToken(tokenId)) {
      throw new OdmoeError(
        'PROTOCOL_VIOLATION',
        `main announced token ${tokenId} at position ${position}; expected a token below ${this.shape.vocabSize} ` +
          `at position ${this.mainTokens.length} of at most ${this.start.maxPositions}: begin the sequence again`,
      );
    }
    this.mainTokens.push(tokenId);
  }

  /** Main's keys and values; kept until they are due, let go when the sequence never aligns them. */
  addKeyValueRows(rows: AlignKeyValueRows): void {
    checkKeyValueRows(rows, this.shape, this.start.maxPositions);
    if (this.periods.keyValue === 0) return;
    if (!this.inbox.add(rows)) this.counts.droppedKeyValueRows += rows.rows;
  }

  /** Decides what to do next, for passes of up to maxRows rows. */
  nextStep(maxRows: number): AlignmentStep {
    return nextStep(this.progress(), this.periods, maxRows);
  }

  /** Writes main's rows that are due before the next position. Not while a pass of this sequence runs. */
  writeDueKeyValues(): void {
    const below = Math.min(
      keyValuesDueBelow(this.nextPosition, this.start.promptTokens, this.periods),
      this.nextPosition,
    );
    for (const rows of this.inbox.takeBelow(below)) {
      this.cache.writeKeyValues(rows.layer, rows.position, rows.rows, rows.keys, rows.values);
      if (rows.layer === this.shape.layers - 1) this.counts.keyValueRows += rows.rows;
    }
  }

  /** Runs the step. Predictions come as each layer's gate decides; a prefill gives none. */
  async run(
    step: Extract<AlignmentStep, { kind: 'prefill' | 'iterate' }>,
    pass: Pass,
    onPrediction: (prediction: LayerPrediction) => void,
  ): Promise<void> {
    this.writeDueKeyValues();
    const rows = step.tokenIds.length;
    const positions = Int32Array.from(step.tokenIds, (_, row) => step.position + row);
    await pass.begin([this.cache], new Int32Array(rows), positions, Int32Array.from(step.tokenIds));
    const onGate = (layer: number, choice: GateChoice): void => this.emit(layer, positions, choice, onPrediction);
    await pass.forward(step.kind === 'prefill' ? null : onGate);
    const end = step.position + rows;
    this.ownToken = this.needsOwnToken(end) ? await this.guessToken(pass, rows - 1, end) : null;
    this.nextPosition = end;
    if (step.kind === 'iterate' && step.tokenFrom === 'main') this.counts.tokens += rows;
  }

  /** Idempotent. Not while a pass of this sequence runs. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.cache.dispose();
  }

  private emit(
    layer: number,
    positions: Int32Array,
    choice: GateChoice,
    onPrediction: (prediction: LayerPrediction) => void,
  ): void {
    const perRow = this.shape.expertsPerToken;
    positions.forEach((position, row) => {
      onPrediction({ position, layer, experts: [...choice.experts.subarray(row * perRow, (row + 1) * perRow)] });
    });
  }

  private async guessToken(pass: Pass, row: number, position: number): Promise<number> {
    return sampleToken(await pass.logits(Int32Array.of(row)), [], position, GREEDY);
  }

  private needsOwnToken(position: number): boolean {
    if (position < this.start.tokenIds.length || position >= this.start.maxPositions) return false;
    return !takesMainToken(position, this.start.promptTokens, this.periods);
  }

  private isToken(tokenId: number): boolean {
    return Number.isInteger(tokenId) && tokenId >= 0 && tokenId < this.shape.vocabSize;
  }

  private progress(): SequenceProgress {
    return {
      mainTokens: this.mainTokens,
      promptTokens: this.start.promptTokens,
      prefillTokens: this.start.tokenIds.length,
      nextPosition: this.nextPosition,
      ownToken: this.ownToken,
      maxPositions: this.start.maxPositions,
    };
  }
}

/** Bytes of one position's keys (or values) in one layer on the wire and in writeKeyValues: FP32. */
export function keyValueRowBytes(shape: ModelShape): number {
  return shape.keyValueHeads * shape.headDim * Float32Array.BYTES_PER_ELEMENT;
}

function checkStart(start: SequenceStart, shape: ModelShape): void {
  const { tokenIds, promptTokens, maxPositions } = start;
  const tokensFit = tokenIds.every((id) => Number.isInteger(id) && id >= 0 && id < shape.vocabSize);
  const promptFits = promptTokens >= 1 && promptTokens <= tokenIds.length;
  if (tokensFit && promptFits && tokenIds.length <= maxPositions && maxPositions <= shape.maxPositions) return;
  throw new OdmoeError(
    'PROTOCOL_VIOLATION',
    `a sequence of ${tokenIds.length} tokens, ${promptTokens} of them prompt, for at most ${maxPositions} positions ` +
      `does not fit a model of ${shape.maxPositions} positions and ${shape.vocabSize} tokens: start both with one pack`,
  );
}

function checkKeyValueRows(rows: AlignKeyValueRows, shape: ModelShape, maxPositions: number): void {
  const expectedBytes = rows.rows * keyValueRowBytes(shape);
  const fits =
    rows.layer < shape.layers &&
    rows.rows > 0 &&
    rows.position + rows.rows <= maxPositions &&
    rows.keys.byteLength === expectedBytes &&
    rows.values.byteLength === expectedBytes;
  if (fits) return;
  throw new OdmoeError(
    'PROTOCOL_VIOLATION',
    `keys and values of layer ${rows.layer}, positions ${rows.position} to ${rows.position + rows.rows}, with ` +
      `${rows.keys.byteLength} and ${rows.values.byteLength} bytes do not fit: expected layers below ${shape.layers}, ` +
      `positions below ${maxPositions} and ${expectedBytes} bytes each`,
  );
}
