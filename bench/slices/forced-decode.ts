/**
 * Runs records behind their first tokens token by token, with each next token given, by the logical cache of each record. All records advance
 * together, a row each.
 */
import { executeRows, runLayers } from '../../engine/generation/run-layers.js';
import type { ExpertSlots, Model, Pass, Sequence } from '../../native/index.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { activatedExperts } from '../../shared/decisions/placement/activated-experts.js';
import type { BudgetReport } from '../../shared/decisions/slices/miss-budget.js';
import { decideRows, SequenceDecisions, type DecisionRules } from '../../shared/decisions/slices/sequence-decisions.js';
import type { SliceReading } from '../../shared/model/tensor-source.js';
import type { QualityRecord } from './quality-records.js';

/** Most rows of a pass. */
const ROWS = 512;

/** Whether an execution runs in the high slots. */
export type ReadsHigh = (isPrompt: boolean, reading: SliceReading) => boolean;

export interface ForcedDecode {
  /** Without experts of its own. */
  readonly model: Model;
  readonly records: readonly QualityRecord[];
  /** So many first tokens of each record are its prompt, or all before its answer where these are fewer. */
  readonly promptTokens: number;
  readonly slots: Readonly<Record<'high' | 'low', ExpertSlots>>;
  readonly readsHigh: ReadsHigh;
  readonly rules: DecisionRules;
}

/** Gets the logits that predict token `index + 1` of a record. */
type OnPredicted = (record: number, index: number, logits: Float32Array) => void;

interface Row {
  readonly record: number;
  readonly position: number;
}

/** A record that runs. */
interface Running {
  readonly sequence: Sequence;
  readonly decisions: SequenceDecisions;
}

/** Returns the report of each record. */
export async function decodeForced(decode: ForcedDecode, onPredicted: OnPredicted): Promise<BudgetReport[]> {
  const { model, records, promptTokens, rules } = decode;
  const pass = model.createPass(ROWS, true);
  const running: Running[] = [];
  try {
    for (const record of records) {
      const decisions = SequenceDecisions.begin(rules, promptRows(record, promptTokens));
      running.push({ sequence: model.createSequence(), decisions });
    }
    for (const rows of passesOf(records, promptTokens)) await runRows(decode, { pass, running, rows }, onPredicted);
    return running.map(({ decisions }) => requirePresent(decisions.report, 'misses are constrained.'));
  } finally {
    for (const { sequence } of running) sequence.dispose();
    pass.dispose();
  }
}

/** Rows of the record's prompt. */
export function promptRows({ answerFrom }: QualityRecord, promptTokens: number): number {
  return Math.min(promptTokens, answerFrom);
}

/** The prompts, as many rows in a pass as fit; then pass after pass the next token of every record that has one. The last token of a record does not run. */
function* passesOf(records: readonly QualityRecord[], promptTokens: number): Generator<Row[]> {
  const prompts = records.flatMap((one, record) =>
    Array.from({ length: promptRows(one, promptTokens) }, (_, position): Row => ({ record, position })),
  );
  for (let first = 0; first < prompts.length; first += ROWS) yield prompts.slice(first, first + ROWS);
  const longest = Math.max(...records.map(({ tokenIds }) => tokenIds.length - 1));
  for (let position = 0; position < longest; position += 1) {
    const rows = records.flatMap((one, record): Row[] =>
      position >= promptRows(one, promptTokens) && position < one.tokenIds.length - 1 ? [{ record, position }] : [],
    );
    for (let first = 0; first < rows.length; first += ROWS) yield rows.slice(first, first + ROWS);
  }
}

async function runRows(
  { model: { shape }, records, promptTokens, slots, readsHigh, rules }: ForcedDecode,
  { pass, running, rows }: { pass: Pass; running: readonly Running[]; rows: readonly Row[] },
  onPredicted: OnPredicted,
): Promise<void> {
  const of = <Item>(items: readonly Item[], { record }: Row): Item =>
    requirePresent(items[record], 'a row belongs to a record.');
  const involved = [...new Set(rows.map(({ record }) => record))];
  const owners = rows.map((row) => ({ decisions: of(running, row).decisions, position: row.position }));
  const isPrompt = rows.map((row) => row.position < promptRows(of(records, row), promptTokens));
  await pass.begin(
    involved.map((record) => of(running, { record, position: 0 }).sequence),
    Int32Array.from(rows, ({ record }) => involved.indexOf(record)),
    Int32Array.from(rows, ({ position }) => position),
    Int32Array.from(rows, (row) => of(records, row).tokenIds[row.position] ?? 0),
  );
  await runLayers(pass, shape, rows.length, async (layer, choice, buffers) => {
    const { experts, weights, readings } = decideRows(rules, layer, owners, choice);
    for (const [expert, executed] of activatedExperts(experts, shape.expertsPerToken, readings)) {
      for (const precision of ['high', 'low'] as const) {
        const some = executed.filter(
          ({ row, reading = 'both' }) => readsHigh(isPrompt[row] === true, reading) === (precision === 'high'),
        );
        // Slots hold values in FP32, which have one reading.
        const plain = some.map(({ row, rank }) => ({ row, rank }));
        await executeRows(slots[precision], layer * shape.experts + expert, plain, buffers, shape);
      }
    }
    return weights;
  });
  const logits = await pass.logits(Int32Array.from(rows.keys()));
  rows.forEach(({ record, position }, row) =>
    onPredicted(record, position, logits.subarray(row * shape.vocabSize, (row + 1) * shape.vocabSize)),
  );
}
