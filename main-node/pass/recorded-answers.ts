import { RecordedRow } from '../../engine/recording/recorded-row.js';
import type { StateRecorder } from '../../engine/recording/state-recorder.js';
import type { RouterChoice } from '../../native/index.js';
import { decodePosition, type MemberRows } from './pass-member.js';

/** A row of the pass that is recorded. */
interface OpenRow {
  readonly answer: number;
  /** Index in the pass. */
  readonly inPass: number;
  readonly row: RecordedRow;
}

/**
 * Records one pass: the first row of each answer in it. The rows after it are drafts, of which nobody knows yet whether they are of the answer. It reads
 * the pass, and changes nothing there. A pass that fails is not recorded.
 */
export class RecordedAnswers {
  private constructor(
    private readonly recorder: StateRecorder,
    private readonly rows: readonly OpenRow[],
  ) {}

  /** Null: nothing of this pass is recorded. */
  static of(recorder: StateRecorder, members: readonly MemberRows[]): RecordedAnswers | null {
    if (!recorder.isOpen) return null;
    let first = 0;
    const rows: OpenRow[] = [];
    for (const one of members) {
      if (decodePosition(one) !== null) {
        rows.push({ answer: one.member.id, inPass: first + one.decodeFrom, row: new RecordedRow(recorder.sizes) });
      }
      first += one.tokenIds.length;
    }
    return rows.length === 0 ? null : new RecordedAnswers(recorder, rows);
  }

  /** Takes the states, rows of the pass x hiddenSize, that main is about to attend from. */
  takeStates(states: Float32Array, layer: number): void {
    const { hiddenSize } = this.recorder.sizes;
    for (const { row, inPass } of this.rows) {
      row.states(layer).set(states.subarray(inPass * hiddenSize, (inPass + 1) * hiddenSize));
    }
  }

  chosen(layer: number, { experts }: Pick<RouterChoice, 'experts'>): void {
    const { expertsPerToken } = this.recorder.sizes;
    for (const { row, inPass } of this.rows) {
      row.choices(layer).set(experts.subarray(inPass * expertsPerToken, (inPass + 1) * expertsPerToken));
    }
  }

  /** The pass has given all that it was run for. Before that it may fail, and run again. */
  end(): void {
    for (const { row, answer } of this.rows) {
      row.seal(answer);
      this.recorder.add(row);
    }
  }
}
