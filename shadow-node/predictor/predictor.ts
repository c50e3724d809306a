import { type FormatSource, NO_FORMATS } from '../../engine/sampling/output-formats.js';
import type { Model, Pass } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/errors/odmoe-error.js';
import type { AlignRows, AlignToken, BeginSequence } from '../../shared/rpc/messages.js';
import type { Runtime } from '../../shared/runtime/runtime.js';
import type { AlignmentStep } from './alignment.js';
import type { PassPrediction } from './pass-predictions.js';
import { ShadowSequence, type AlignmentCounts, type Draft } from './shadow-sequence.js';

/** Sequences that main may have open at once. */
export const MAX_SEQUENCES = 256;

export interface PredictorEvents {
  /** `late`: main is past the pass, so that only its count of recall can use the prediction. */
  onPrediction(sequence: number, prediction: PassPrediction, late: boolean): void;
  onDraft(sequence: number, draft: Draft): void;
  /** A token was guessed wrong: what was predicted and drafted from `position` on is void. */
  onRestart(sequence: number, position: number): void;
  /** The sequence has been dropped. */
  onFailure(sequence: number, error: OdmoeError): void;
}

export interface PredictorCounts {
  predictedPositions: number;
  alignedTokens: number;
  alignedRows: number;
  droppedRows: number;
}

type RunnableStep = Extract<AlignmentStep, { kind: 'prefill' | 'iterate' }>;

/**
 * Runs the shadow model for main's sequences, one pass at a time; sequences that can go on take turns, first come first
 * served, a prefill in pieces. What main tells is taken in at once and acted on between passes.
 */
export class Predictor {
  private readonly sequences = new Map<number, ShadowSequence>();
  /** Ids in the order of their turns. */
  private turns: number[] = [];
  private running: ShadowSequence | null = null;
  private loop: Promise<void> | null = null;
  private stopped = false;
  private readonly ended: AlignmentCounts = {
    ...{ tokens: 0, cacheRows: 0, droppedRows: 0, predictedPositions: 0 },
  };

  /** maxRows: rows of the pass. */
  constructor(
    private readonly model: Model,
    private readonly pass: Pass,
    private readonly maxRows: number,
    private readonly events: PredictorEvents,
    private readonly runtime: Pick<Runtime, 'nowMs'>,
    private readonly formats: FormatSource = NO_FORMATS,
  ) {}

  counts(): PredictorCounts {
    const counts = { ...this.ended };
    for (const sequence of this.sequences.values()) addCounts(counts, sequence);
    return {
      predictedPositions: counts.predictedPositions,
      alignedTokens: counts.tokens,
      alignedRows: counts.cacheRows,
      droppedRows: counts.droppedRows,
    };
  }

  /** Sequences, their turns, and passes under way; positions and drafts that are remembered for the sequences. */
  get openCounts(): Record<string, number> {
    let [positions, drafts] = [0, 0];
    for (const { openCounts } of this.sequences.values()) {
      positions += openCounts.positions;
      drafts += openCounts.drafts;
    }
    const { size: sequences } = this.sequences;
    return { sequences, turns: this.turns.length, passes: this.running === null ? 0 : 1, positions, drafts };
  }

  /** Begins a sequence, or begins it again. Throws PROTOCOL_VIOLATION, QUEUE_FULL or DEVICE_OUT_OF_MEMORY. */
  begin(begin: BeginSequence): void {
    this.end(begin.sequence);
    if (this.sequences.size >= MAX_SEQUENCES) {
      throw new OdmoeError('QUEUE_FULL', `the shadow holds ${MAX_SEQUENCES} sequences already: end some first`);
    }
    this.sequences.set(begin.sequence, this.createSequence(begin));
    this.turns.push(begin.sequence);
    this.wake();
  }

  /** A token of a sequence that is not open (dropped after a failure, say) is of no use and ignored. */
  announceToken(token: AlignToken): void {
    this.sequences.get(token.sequence)?.announceToken(token);
    this.wake();
  }

  addRows(rows: AlignRows): void {
    this.sequences.get(rows.sequence)?.addRows(rows);
    this.wake();
  }

  end(id: number): void {
    const sequence = this.sequences.get(id);
    if (sequence === undefined) return;
    this.sequences.delete(id);
    this.turns = this.turns.filter((turn) => turn !== id);
    addCounts(this.ended, sequence);
    if (sequence !== this.running) sequence.dispose();
    else sequence.cancel();
  }

  /** Ends every sequence. */
  clear(): void {
    for (const id of [...this.sequences.keys()]) this.end(id);
  }

  /** Ends everything and resolves when no pass runs any more; the pass and the model may then be disposed. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.clear();
    // Where a pass has failed, its sequence has been told; here it only must be over.
    await this.loop?.catch(() => undefined);
  }

  /** One that has ended says nothing more, though its pass may still run. */
  private createSequence(begin: BeginSequence): ShadowSequence {
    const id = begin.sequence;
    const open = () => this.sequences.get(id) === sequence;
    const sequence: ShadowSequence = new ShadowSequence(
      this.model,
      begin,
      {
        onPrediction: (prediction, late) => {
          if (open()) this.events.onPrediction(id, prediction, late);
        },
        onDraft: (draft) => {
          if (open()) this.events.onDraft(id, draft);
        },
        onRestart: (position) => {
          if (open()) this.events.onRestart(id, position);
        },
      },
      () => this.runtime.nowMs(),
      this.formats,
    );
    return sequence;
  }

  private wake(): void {
    if (this.loop !== null || this.stopped) return;
    this.loop = this.runReady();
  }

  private async runReady(): Promise<void> {
    // Messages that have arrived together are all taken in before the first decision.
    await Promise.resolve();
    for (let next = this.takeTurn(); next !== null; next = this.takeTurn()) {
      await this.runStep(next.id, next.sequence, next.step);
    }
    // In the same turn of the event loop as the last look for work, so that no wake is lost.
    this.loop = null;
  }

  /** The next sequence in turn that can run, moved to the end of the turns; null when all of them wait. */
  private takeTurn(): { id: number; sequence: ShadowSequence; step: RunnableStep } | null {
    for (const id of [...this.turns]) {
      const sequence = this.sequences.get(id);
      if (sequence === undefined) continue;
      const step = sequence.nextStep(this.maxRows);
      if (step.kind === 'prefill' || step.kind === 'iterate') {
        this.turns = [...this.turns.filter((turn) => turn !== id), id];
        return { id, sequence, step };
      }
      // While it waits for the token the rows that came before it can be written already.
      this.guard(id, () => sequence.writeDueRows());
    }
    return null;
  }

  private async runStep(id: number, sequence: ShadowSequence, step: RunnableStep): Promise<void> {
    this.running = sequence;
    const open = () => this.sequences.get(id) === sequence;
    try {
      await sequence.run(step, this.pass);
    } catch (error) {
      if (open()) this.fail(id, error);
    } finally {
      this.running = null;
      if (!open()) sequence.dispose();
    }
  }

  private guard(id: number, action: () => void): void {
    try {
      action();
    } catch (error) {
      this.fail(id, error);
    }
  }

  private fail(id: number, error: unknown): void {
    this.end(id);
    this.events.onFailure(id, toOdmoeError(error));
  }
}

function addCounts(sum: AlignmentCounts, { counts }: ShadowSequence): void {
  sum.tokens += counts.tokens;
  sum.cacheRows += counts.cacheRows;
  sum.droppedRows += counts.droppedRows;
  sum.predictedPositions += counts.predictedPositions;
}
