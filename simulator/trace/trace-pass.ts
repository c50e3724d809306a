import type { RouterChoice, Pass, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { TracedRow, TraceModel } from './trace-model.js';
import { TraceSequence } from './trace-sequence.js';

/** A pass that takes routers' choices and tokens from a trace. It computes nothing: hidden states do not change. */
export class TracePass implements Pass {
  private sequences: TraceSequence[] = [];
  private rows: TracedRow[] = [];
  /** For each row, the index of its sequence in `sequences`. */
  private rowSequence: Int32Array = new Int32Array(0);

  constructor(
    private readonly model: TraceModel,
    private readonly shape: ModelShape,
  ) {}

  async begin(
    sequences: Sequence[],
    rowSequence: Int32Array,
    positions: Int32Array,
    tokenIds: Int32Array,
  ): Promise<void> {
    this.sequences = sequences.map(tracedSequence);
    this.rowSequence = rowSequence.slice();
    this.rows = Array.from(positions, (position, row) => this.sequenceOf(row).take(position, tokenIds[row] ?? 0));
  }

  async attend(layer: number): Promise<RouterChoice> {
    if (layer === this.shape.expertLayers - 1) this.ran();
    return this.choice(layer, (row) => this.model.experts(row, layer));
  }

  async chooseAhead(layer: number): Promise<RouterChoice> {
    return this.choice(layer, (row) => this.model.ahead(row, layer));
  }

  async residual(states: Float32Array): Promise<void> {
    states.fill(0);
  }

  async combine(): Promise<void> {
    // All outputs of experts are zero.
  }

  async forward(onRouter: ((layer: number, choice: RouterChoice) => void) | null): Promise<void> {
    for (let layer = 0; layer < this.shape.expertLayers; layer += 1) {
      onRouter?.(
        layer,
        this.choice(layer, (row) => this.model.experts(row, layer)),
      );
    }
    this.ran();
  }

  /** A trace has no hidden states. */
  async states(rows: Int32Array): Promise<Float32Array> {
    return new Float32Array(rows.length * this.shape.hiddenSize);
  }

  /** The logit of the next token is 1, all others are 0. */
  async logits(rows: Int32Array): Promise<Float32Array> {
    const { vocabSize } = this.shape;
    const logits = new Float32Array(rows.length * vocabSize);
    rows.forEach((row, place) => {
      logits[place * vocabSize + this.model.nextToken(this.rowAt(row))] = 1;
    });
    return logits;
  }

  cancel(): void {
    // A forward ends at once, so there is nothing to cancel.
  }

  dispose(): void {
    this.sequences = [];
    this.rows = [];
  }

  private choice(layer: number, expertsOf: (row: TracedRow) => readonly number[]): RouterChoice {
    const { expertsPerToken } = this.shape;
    const experts = new Int32Array(this.rows.length * expertsPerToken);
    const weights = new Float32Array(experts.length).fill(1 / expertsPerToken);
    this.rows.forEach((row, place) => {
      const chosen = expertsOf(row);
      experts.set(chosen, place * expertsPerToken);
      const ofRow = this.model.weights?.(row, layer, chosen);
      if (ofRow !== undefined) weights.set(ofRow, place * expertsPerToken);
    });
    return { experts, weights };
  }

  private ran(): void {
    const starts = new Map<TraceSequence, number>();
    for (const [row, { position }] of this.rows.entries()) {
      const sequence = this.sequenceOf(row);
      const start = starts.get(sequence) ?? position;
      starts.set(sequence, start);
      sequence.ran(start, position);
    }
  }

  private sequenceOf(row: number): TraceSequence {
    const sequence = this.sequences[this.rowSequence[row] ?? 0];
    if (sequence === undefined) throw new OdmoeError('INTERNAL', `row ${row} of a traced pass has no sequence`);
    return sequence;
  }

  private rowAt(row: number): TracedRow {
    const traced = this.rows[row];
    if (traced === undefined) throw new OdmoeError('INTERNAL', `a traced pass has no row ${row}`);
    return traced;
  }
}

function tracedSequence(sequence: Sequence): TraceSequence {
  if (sequence instanceof TraceSequence) return sequence;
  throw new OdmoeError('INTERNAL', 'a traced pass takes only sequences of its own device');
}
