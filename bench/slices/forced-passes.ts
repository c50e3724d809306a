/** Runs records through a model whose experts are in slots, layer by layer as main does, with each next token given (teacher forcing). */
import { executeRows, runLayers, type LayerBuffers } from '../../engine/generation/run-layers.js';
import type { ExpertSlots, Model, Pass, RouterChoice, Sequence } from '../../native/index.js';
import { activatedExperts, type ActivatedRow } from '../../shared/decisions/placement/activated-experts.js';
import { renormalizedWeights } from '../../shared/decisions/slices/critical-executions.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { QualityRecord } from './quality-records.js';

/** Rows of a pass, unless one record has more. */
const ROWS = 512;

/** Decides for each execution of a layer of a pass whether it reads the high slots. `renormalized`: rows x expertsPerToken, by rank. */
export type ChoosePrecision = (renormalized: Float32Array) => readonly boolean[];

/** The experts that passes run. */
export interface PassExperts {
  readonly high: ExpertSlots;
  /** Null: every execution reads the high slots. */
  readonly mixed: { readonly low: ExpertSlots; readonly choose: ChoosePrecision } | null;
}

export interface PassVisitor {
  /** The logits that predict token `index + 1` of a record. They may be kept. */
  predicted(record: number, index: number, logits: Float32Array): void;
  /** The renormalized weights of a layer of a pass. */
  routed?(renormalized: Float32Array): void;
}

interface Batch {
  readonly records: readonly { readonly number: number; readonly inputIds: readonly number[] }[];
  readonly rows: number;
}

export class ForcedPasses {
  private readonly batches: readonly Batch[];
  readonly maxRows: number;
  private readonly shape: ModelShape;

  /** `model`: without experts of its own. */
  constructor(
    private readonly model: Model,
    records: readonly QualityRecord[],
  ) {
    this.shape = model.shape;
    this.batches = batchesOf(records);
    this.maxRows = Math.max(...this.batches.map(({ rows }) => rows));
  }

  async run(experts: PassExperts, visitor: PassVisitor): Promise<void> {
    const pass = this.model.createPass(this.maxRows);
    try {
      for (const batch of this.batches) await this.runBatch(pass, batch, experts, visitor);
    } finally {
      pass.dispose();
    }
  }

  private async runBatch(pass: Pass, batch: Batch, experts: PassExperts, visitor: PassVisitor): Promise<void> {
    const sequences: Sequence[] = [];
    try {
      const inputs = batch.records.map(({ inputIds }) => inputIds);
      inputs.forEach(() => sequences.push(this.model.createSequence()));
      const rowSequence = Int32Array.from(inputs.flatMap((ids, sequence) => ids.map(() => sequence)));
      const positions = Int32Array.from(inputs.flatMap((ids) => [...ids.keys()]));
      await pass.begin(sequences, rowSequence, positions, Int32Array.from(inputs.flat()));
      await runLayers(pass, this.shape, batch.rows, async (layer, choice, buffers) => {
        await this.runExperts(layer, choice, experts, buffers, visitor);
        return choice.weights;
      });
      await this.showLogits(pass, batch, visitor);
    } finally {
      for (const sequence of sequences) sequence.dispose();
    }
  }

  private async runExperts(
    layer: number,
    choice: RouterChoice,
    { high, mixed }: PassExperts,
    buffers: LayerBuffers,
    visitor: PassVisitor,
  ): Promise<void> {
    const { experts, expertsPerToken } = this.shape;
    const renormalized = renormalizedWeights(choice.weights, expertsPerToken);
    const isHigh = mixed?.choose(renormalized) ?? null;
    visitor.routed?.(renormalized);
    const execute = async (slots: ExpertSlots, slot: number, rows: readonly ActivatedRow[]): Promise<void> =>
      executeRows(slots, slot, rows, buffers, this.shape);
    for (const [expert, rows] of activatedExperts(choice.experts, expertsPerToken)) {
      const readsHigh = ({ row, rank }: ActivatedRow): boolean => isHigh?.[row * expertsPerToken + rank] ?? true;
      const slot = layer * experts + expert;
      await execute(high, slot, rows.filter(readsHigh));
      if (mixed === null) continue;
      await execute(
        mixed.low,
        slot,
        rows.filter((row) => !readsHigh(row)),
      );
    }
  }

  private async showLogits(pass: Pass, batch: Batch, visitor: PassVisitor): Promise<void> {
    const { vocabSize } = this.shape;
    const logits = await pass.logits(Int32Array.from({ length: batch.rows }, (_, row) => row));
    let row = 0;
    for (const { number, inputIds } of batch.records) {
      for (let index = 0; index < inputIds.length; index += 1) {
        visitor.predicted(number, index, logits.subarray(row * vocabSize, (row + 1) * vocabSize));
        row += 1;
      }
    }
  }
}

/** Whole records one after another, as many in a batch as fit. The last token of a record predicts nothing, so it does not run. */
function batchesOf(records: readonly QualityRecord[]): Batch[] {
  const batches: Batch[] = [];
  for (const [number, { tokenIds }] of records.entries()) {
    const record = { number, inputIds: tokenIds.slice(0, -1) };
    const last = batches.at(-1);
    const rows = (last?.rows ?? 0) + record.inputIds.length;
    if (last === undefined || rows > ROWS) batches.push({ records: [record], rows: record.inputIds.length });
    else batches[batches.length - 1] = { records: [...last.records, record], rows };
  }
  return requirePresent(batches.length > 0 ? batches : null, 'there is at least one record.');
}
