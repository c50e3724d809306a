/**
 * The experts, weights and precision of one sequence's rows by its logical cache, and the record of them. Rows that run again, after a preemption
 * or a failed pass, decide as they did before.
 */
import { assertInvariant, requirePresent } from '../../base/errors/assert-invariant.js';
import type { RouterShape } from '../../model/model-shape.js';
import type { SliceReading } from '../../model/tensor-source.js';
import { rangeOf, renormalizedScores, type RouterScores } from './choose-experts.js';
import {
  DecisionRecord,
  RECORD_BLOCK_ROWS,
  recordBytes,
  type DecidedLayer,
  type RecordShape,
} from './decision-record.js';
import { LogicalCache } from './logical-cache.js';
import { LogicalSequence, type SequenceRules } from './logical-sequence.js';
import type { BudgetReport } from './miss-budget.js';
import { outputWeights } from './output-weights.js';
import { UPPER_READING } from './plan-readings.js';

export interface DecisionRules {
  readonly sequence: SequenceRules;
  /** By expert layer. */
  readonly routers: readonly RouterShape[];
}

/** The router's answer for some rows: all arrays row by row. `experts` and `weights`: the router's own choice, by rank. */
export interface RouterAnswer {
  readonly experts: Int32Array;
  readonly weights: Float32Array;
  readonly logits?: Float32Array;
  readonly scores?: Float32Array;
}

/** The executions of some rows, rows x expertsPerToken by rank. */
export interface DecidedRows {
  readonly experts: Int32Array;
  readonly weights: Float32Array;
  readonly readings: readonly SliceReading[];
}

/** Bytes of memory of the decisions of a sequence with so many rows, if it shares nothing. */
export function decisionBytes({ sequence }: DecisionRules, rows: number): number {
  return rows === 0 ? 0 : stateBytes(sequence) + recordBytes(recordShape(sequence), rows);
}

function recordShape({ cache: { layers, experts }, expertsPerToken }: SequenceRules): RecordShape {
  return { layers, experts, expertsPerToken };
}

/** Bytes of a state: the cache, and what the prompt chose. */
function stateBytes({ cache }: SequenceRules): number {
  const { layers, experts } = cache;
  return LogicalCache.bytes(cache) + layers * (2 * experts + 2) * Float64Array.BYTES_PER_ELEMENT;
}

/** Each new row of an answer runs in a pass without later rows of it: the next row decides by what this one has done in all layers. */
export class SequenceDecisions {
  private state: LogicalSequence;
  private record: DecisionRecord;

  private constructor(
    private readonly rules: DecisionRules,
    private readonly promptRows: number,
    record: DecisionRecord,
  ) {
    this.record = record;
    this.state = stateAfter(rules, promptRows, record);
  }

  /** `promptRows`: tokens of the prompt, at least 1. */
  static begin(rules: DecisionRules, promptRows: number): SequenceDecisions {
    return new SequenceDecisions(rules, promptRows, new DecisionRecord(recordShape(rules.sequence)));
  }

  /** The decisions of the first `rows` rows, which belong to the prompt: another prompt that begins with the same tokens can go on from them. */
  promptPart(rows: number): DecisionRecord {
    assertInvariant(rows <= this.promptRows, 'rows of an answer are none of a prompt.');
    return this.record.part(rows);
  }

  /** The sequence has got rows of another one's prompt before its first pass. Takes their record over. */
  beginWith(prompt: DecisionRecord): void {
    assertInvariant(this.record.rowsOf(0) === 0, 'a sequence begins with rows of another one, or with none.');
    this.record = prompt;
    this.state = stateAfter(this.rules, this.promptRows, this.record);
  }

  /** Rows of the prompt that have decided in all layers. */
  get decidedPromptRows(): number {
    return Math.min(this.record.rows, this.promptRows);
  }

  /** Bytes of memory. What a record shares with others counts as its own. */
  get bytes(): number {
    return stateBytes(this.rules.sequence) + this.record.bytes;
  }

  /** The state of the constraint on misses; null: there is none. */
  get report(): BudgetReport | null {
    return this.state.report;
  }

  /** The end of the longest pass that may begin at this row. */
  passEnd(row: number): number {
    return Math.max(row + 1, this.promptRows, this.record.rows);
  }

  /** The row's executions. Rows of a prompt have both slices, and the router's own choice. */
  decide(row: number, layer: number, router: RouterScores, own: readonly number[]): DecidedLayer {
    if (this.record.has(row, layer)) return this.record.read(row, layer);
    const decided = row < this.promptRows ? this.takePrompt(layer, router, own) : this.runLayer(row, layer, router);
    this.record.add(row, layer, decided);
    if (row < this.promptRows && (row + 1) % RECORD_BLOCK_ROWS === 0) {
      this.state.notePrompt(layer, this.record.stateToFill((row + 1) / RECORD_BLOCK_ROWS));
    }
    if (layer === this.rules.routers.length - 1) endRow(this.state, row, this.promptRows);
    return decided;
  }

  /** Forgets what rows from this one on have decided. */
  cutBack(rows: number): void {
    if (this.record.rowsOf(0) <= rows) return;
    this.record = this.record.part(Math.min(rows, this.record.rows));
    this.state = stateAfter(this.rules, this.promptRows, this.record);
  }

  private takePrompt(layer: number, router: RouterScores, own: readonly number[]): DecidedLayer {
    const choice = {
      experts: own,
      renormalizedWeights: renormalizedScores(router, own),
      logitsRange: rangeOf(router.logits),
    };
    this.state.takePromptChoice(layer, choice);
    return { ...choice, isHigh: own.map(() => true) };
  }

  private runLayer(row: number, layer: number, router: RouterScores): DecidedLayer {
    assertInvariant(
      this.record.rows === row,
      'a row of an answer decides once the row before has decided in all layers.',
    );
    const executions = this.state.runLayer(layer, router);
    return {
      experts: executions.map(({ expert }) => expert),
      renormalizedWeights: Float32Array.from(executions, ({ renormalizedWeight }) => renormalizedWeight),
      logitsRange: rangeOf(router.logits),
      isHigh: executions.map(({ precision }) => precision === 'high'),
    };
  }
}

/** Decides for the rows of a pass, each of which belongs to a sequence. */
export function decideRows(
  rules: DecisionRules,
  layer: number,
  owners: readonly { readonly decisions: SequenceDecisions; readonly position: number }[],
  answer: RouterAnswer,
): DecidedRows {
  const { cache, expertsPerToken } = rules.sequence;
  const router = requirePresent(rules.routers[layer], 'each layer with experts has a router.');
  const { logits, scores } = answer;
  assertInvariant(logits !== undefined && scores !== undefined, 'routers answer all scores for a logical cache.');
  const experts = new Int32Array(answer.experts.length);
  const weights = new Float32Array(answer.weights.length);
  const readings = owners.flatMap(({ decisions, position }, row) => {
    const [first, end] = [row * expertsPerToken, (row + 1) * expertsPerToken];
    const ofRow = (values: Float32Array): Float32Array =>
      values.subarray(row * cache.experts, (row + 1) * cache.experts);
    const own = [...answer.experts.subarray(first, end)];
    const ofRouter = { logits: ofRow(logits), scores: ofRow(scores) };
    const decided = decisions.decide(position, layer, ofRouter, own);
    experts.set(decided.experts, first);
    weights.set(outputWeights(router, ofRouter.scores, decided.experts), first);
    return decided.isHigh.map((high): SliceReading => (high ? 'both' : UPPER_READING));
  });
  return { experts, weights, readings };
}

/**
 * The state of a sequence whose rows have decided so. A row that has not decided in all layers counts as one that has not begun. Rows of the prompt
 * before the last state that the record has need no work: less than a block of them is taken again.
 */
function stateAfter({ sequence, routers }: DecisionRules, promptRows: number, record: DecisionRecord): LogicalSequence {
  const known = record.stateBefore(Math.min(record.rows, promptRows - 1));
  const state = LogicalSequence.begin(sequence, known?.state);
  for (let row = known?.row ?? 0; row < record.rows; row += 1) {
    for (let layer = 0; layer < routers.length; layer += 1) {
      const choice = record.choice(row, layer);
      if (row < promptRows) state.takePromptChoice(layer, choice);
      else state.repeatLayer(layer, choice);
    }
    endRow(state, row, promptRows);
  }
  return state;
}

/** The row has decided in all layers. */
function endRow(state: LogicalSequence, row: number, promptRows: number): void {
  if (row === promptRows - 1) state.endPrompt();
  if (row >= promptRows) state.endStep();
}
