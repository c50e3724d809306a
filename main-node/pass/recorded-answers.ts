import { RecordedRow } from '../../engine/recording/recorded-row.js';
import type { StateRecorder } from '../../engine/recording/state-recorder.js';
import type { Pass, RouterChoice } from '../../native/index.js';
import { decodePosition, type MemberRows } from './pass-member.js';
import { copyResidual } from './reusable-passes.js';

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
  /** rows of the pass x hiddenSize */
  private readonly states: Float32Array;

  private constructor(
    private readonly recorder: StateRecorder,
    private readonly rows: readonly OpenRow[],
    private readonly passRows: number,
  ) {
    this.states = new Float32Array(passRows * recorder.sizes.hiddenSize);
  }

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
    return rows.length === 0 ? null : new RecordedAnswers(recorder, rows, first);
  }

  /** Takes the states that main is about to attend from. */
  async takeStates(pass: Pick<Pass, 'residual' | 'residualHere'>, layer: number): Promise<void> {
    const { states, rows, passRows } = this;
    const { hiddenSize } = this.recorder.sizes;
    await copyResidual(pass, states, passRows);
    for (const { row, inPass } of rows) {
      row.states(layer).set(states.subarray(inPass * hiddenSize, (inPass + 1) * hiddenSize));
    }
  }

  chosen(layer: number, { experts }: Pick<RouterChoice, 'experts'>): void {
    const { expertsPerToken } = this.recorder.sizes;
    for (const { row, inPass } of this.rows) {
      row.choices(layer).set(experts.subarray(inPass * expertsPerToken, (inPass + 1) * expertsPerToken));
    }
  }

  /** The pass has come to its end. */
  end(): void {
    for (const { row, answer } of this.rows) {
      row.seal(answer);
      this.recorder.add(row);
    }
  }
}
