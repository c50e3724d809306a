import { type FormatSource, NO_FORMATS } from '../../engine/sampling/output-formats.js';
import type { Model, Pass } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { AlignRows, AlignToken, BeginSequence } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { RunnableStep } from './alignment.js';
import { RetainedSequences, NOTHING_RETAINED, type RetainedLimits } from './retained-sequences.js';
import type { PassPrediction } from './pass-predictions.js';
import { runPass, type ShadowStep } from './run-pass.js';
import { ShadowSequence, type AlignmentCounts, type Draft } from './shadow-sequence.js';

/** Most sequences that main may have open at once. */
export const MAX_SHADOW_SEQUENCES = 256;

/**
 * Main sends the tokens of a joint pass one after another. The first ones wait for the others at most for this time, and at most for this share of
 * the last pass's time. Tokens that come later wait for the pass to end.
 */
export const GATHER_LIMIT_MS = 5;
const GATHER_SHARE = 0.5;

export interface PredictorEvents {
  /** `late`: main is past the pass, so that the prediction can only be used for its count of recall. */
  onPrediction(sequence: number, prediction: PassPrediction, late: boolean): void;
  onDraft(sequence: number, draft: Draft): void;
  /** A token was guessed wrong: predictions and drafts from `position` on are void. */
  onRestart(sequence: number, position: number): void;
  /** For a sequence that begins as another one: the number of positions that shadow has of that one. */
  onPrefixKept(sequence: number, positions: number): void;
  /** The sequence has been dropped. */
  onFailure(sequence: number, error: OdmoeError): void;
}

export interface PredictorCounts {
  predictedPositions: number;
  alignedTokens: number;
  alignedRows: number;
  droppedRows: number;
  /** Bytes of retained sequences, estimated from their positions. */
  prefixBytes: number;
}

/** A sequence of the running pass, with its step. */
interface Runner extends ShadowStep {
  readonly id: number;
}

/**
 * Runs the shadow model for main's sequences, one pass at a time. A pass holds rows of all sequences that can go on (planShadowPass); they take turns
 * in the order in which they came. Main's messages are taken in at once and acted on between passes.
 */
export class Predictor {
  private readonly sequences = new Map<number, ShadowSequence>();
  /** Ids in the order of their turns. */
  private turns: number[] = [];
  private running: readonly Runner[] = [];
  private bulkWasLeftOut = false;
  /** Sequences of a pass that has failed: each gets its next pass for itself, so that a failure concerns one sequence alone. */
  private readonly alone = new Set<number>();
  private readonly retained: RetainedSequences;
  /** Sequences that have ended while a pass runs on them. They are retained after it. */
  private readonly leaving = new Set<ShadowSequence>();
  private loop: Promise<void> | null = null;
  private lastPassMs = 0;
  /** Called when something has come while a pass waits for tokens. */
  private onHeard: (() => void) | null = null;
  /** Sequences whose tokens did not come while a pass waited for them. */
  private readonly missed = new Set<number>();
  private stopped = false;
  private readonly ended: AlignmentCounts = {
    tokens: 0,
    cacheRows: 0,
    droppedRows: 0,
    predictedPositions: 0,
  };

  /** `maxRows`: rows of the pass. */
  constructor(
    private readonly model: Model,
    private readonly pass: Pass,
    private readonly maxRows: number,
    private readonly events: PredictorEvents,
    private readonly runtime: Pick<Runtime, 'nowMs' | 'after' | 'nextTurn'>,
    private readonly formats: FormatSource = NO_FORMATS,
    retainedLimits: RetainedLimits = NOTHING_RETAINED,
  ) {
    this.retained = new RetainedSequences(model, retainedLimits);
  }

  counts(): PredictorCounts {
    const counts = { ...this.ended };
    for (const sequence of this.sequences.values()) addCounts(counts, sequence);
    return {
      predictedPositions: counts.predictedPositions,
      alignedTokens: counts.tokens,
      alignedRows: counts.cacheRows,
      droppedRows: counts.droppedRows,
      prefixBytes: this.prefixBytes(),
    };
  }

  private prefixBytes(): number {
    const { positions: retainedPositions } = this.retained;
    if (retainedPositions === 0) return 0;
    const open = [...this.sequences.values()].reduce((sum, { cache }) => sum + cache.length, 0);
    return Math.floor((this.model.sequenceBytes * retainedPositions) / (retainedPositions + open));
  }

  /** Number of sequences, their turns, and running passes; and of positions and drafts that are remembered for the sequences. */
  get openCounts(): Record<string, number> {
    let [positions, drafts] = [0, 0];
    for (const { openCounts } of this.sequences.values()) {
      positions += openCounts.positions;
      drafts += openCounts.drafts;
    }
    return {
      sequences: this.sequences.size,
      turns: this.turns.length,
      passes: Math.min(1, this.running.length),
      positions,
      drafts,
    };
  }

  /** Number of ended sequences that others may go on from. */
  get retainedCount(): number {
    return this.retained.size;
  }

  /** Begins a sequence, or begins it again. Throws PROTOCOL_VIOLATION, QUEUE_FULL or DEVICE_OUT_OF_MEMORY. */
  begin(begin: BeginSequence): void {
    this.close(begin.sequence, false);
    if (this.sequences.size >= MAX_SHADOW_SEQUENCES) {
      throw new OdmoeError('QUEUE_FULL', `the shadow holds ${MAX_SHADOW_SEQUENCES} sequences already: end some first`);
    }
    this.sequences.set(
      begin.sequence,
      this.withRoom(() => this.createSequence(begin)),
    );
    this.turns.push(begin.sequence);
    this.wake();
  }

  /** A token of a sequence that is not open (dropped after a failure, for example) is ignored. */
  announceToken(token: AlignToken): void {
    this.sequences.get(token.sequence)?.announceToken(token);
    this.missed.delete(token.sequence);
    this.wake();
  }

  addRows(rows: AlignRows): void {
    this.sequences.get(rows.sequence)?.addRows(rows);
    this.wake();
  }

  /** The sequence has ended. Its rows are retained for others that begin alike. */
  end(id: number): void {
    this.close(id, !this.retained.keepsNothing);
  }

  /** Ends every sequence, and retains nothing. */
  clear(): void {
    for (const id of [...this.sequences.keys()]) this.close(id, false);
    this.leaving.clear();
    this.retained.clear();
  }

  /** Ends everything and resolves when no pass runs any more; the pass and the model may then be disposed. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.clear();
    // If a pass has failed, the failure of its sequence has been reported; here the loop only has to be over.
    await this.loop?.catch(() => undefined);
  }

  private close(id: number, isRetained: boolean): void {
    const sequence = this.sequences.get(id);
    if (sequence === undefined) return;
    this.sequences.delete(id);
    this.turns = this.turns.filter((turn) => turn !== id);
    this.alone.delete(id);
    this.missed.delete(id);
    this.onHeard?.();
    addCounts(this.ended, sequence);
    if (!this.running.some((runner) => runner.sequence === sequence)) return this.leave(id, sequence, isRetained);
    if (isRetained) this.leaving.add(sequence);
    sequence.cancel();
  }

  /** Retains or disposes the sequence, on which no pass runs. */
  private leave(id: number, sequence: ShadowSequence, isRetained: boolean): void {
    if (!isRetained || sequence.ran.tokenIds.length === 0) return sequence.dispose();
    try {
      this.retained.add(id, sequence.handOver());
    } catch {
      // Main's last rows could not be written: a sequence without them is not worth retaining.
      sequence.dispose();
    }
  }

  /** A sequence that has ended sends no more events, though its pass may still run. */
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
        onFailure: (error) => {
          if (open()) this.fail(id, error);
        },
      },
      this.formats,
    );
    return sequence;
  }

  private wake(): void {
    this.onHeard?.();
    if (this.loop !== null || this.stopped) return;
    this.loop = this.runReady();
  }

  private async runReady(): Promise<void> {
    // Messages that have arrived together are all taken in before the first decision.
    await Promise.resolve();
    for (;;) {
      await this.gather();
      const runners = this.nextRunners();
      if (runners.length === 0) break;
      await this.runTogether(runners);
    }
    // This runs in the same turn of the event loop as the last search for work, so that no wake is lost.
    this.loop = null;
  }

  /** Waits for the remaining tokens of a pass of main, if some have come. */
  private async gather(): Promise<void> {
    const endMs = this.runtime.nowMs() + Math.min(GATHER_LIMIT_MS, this.lastPassMs * GATHER_SHARE);
    for (let late = this.lateJoiners(); late.length > 0; late = this.lateJoiners()) {
      const limitMs = endMs - this.runtime.nowMs();
      if (limitMs > 0) await this.heard(limitMs);
      else for (const id of late) this.missed.add(id);
    }
  }

  /** Sequences whose tokens have not come yet, and that main runs together with one that could run now. */
  private lateJoiners(): number[] {
    const joint = [...this.sequences].filter(([, sequence]) => sequence.isJoint);
    const steps = joint.map(([id, sequence]) => ({ id, step: sequence.nextStep(this.maxRows) }));
    if (!steps.some(({ step }) => step.kind === 'iterate')) return [];
    const isLate = ({ id, step }: (typeof steps)[number]): boolean =>
      step.kind === 'wait' && step.reason === 'token' && !this.missed.has(id);
    return steps.filter(isLate).map(({ id }) => id);
  }

  /** Resolves when something has come, or after limitMs. */
  private async heard(limitMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = this.runtime.after(limitMs, resolve);
      this.onHeard = () => {
        timer.cancel();
        resolve();
      };
    });
    this.onHeard = null;
  }

  private nextRunners(): Runner[] {
    for (const [id, sequence] of [...this.sequences]) {
      const source = sequence.awaitedPrefix;
      if (source !== null) this.guard(id, () => this.takePrefix(id, sequence, source));
    }
    return this.takeTurns();
  }

  private takePrefix(id: number, sequence: ShadowSequence, source: number): void {
    const ran = this.sequences.get(source)?.ran ?? this.retained.use(source);
    this.events.onPrefixKept(id, sequence.takePrefix(ran));
  }

  /** The steps that the next pass runs; its sequences move to the end of the turns. Empty: all sequences wait. */
  private takeTurns(): Runner[] {
    const ready: Runner[] = [];
    for (const id of [...this.turns]) {
      const sequence = this.sequences.get(id);
      const step = sequence?.nextStep(this.maxRows);
      if (sequence === undefined || step === undefined) continue;
      if (step.kind === 'prefill' || step.kind === 'iterate') ready.push({ id, sequence, step });
      // While it waits for the token, the rows that came before it can already be written.
      else this.guard(id, () => sequence.writeDueRows());
    }
    const runners = this.choose(ready);
    const running = new Set(runners.map(({ id }) => id));
    this.turns = [...this.turns.filter((id) => !running.has(id)), ...running];
    return runners;
  }

  private choose(ready: readonly Runner[]): Runner[] {
    const single = ready.find(({ id }) => this.alone.delete(id));
    if (single !== undefined) return [single];
    const wanted = ready.map(({ step }) => ({ kind: step.kind, rows: step.tokenIds.length }));
    const plan = planShadowPass(wanted, this.maxRows, this.bulkWasLeftOut);
    this.bulkWasLeftOut = plan.leavesBulkOut;
    return ready.flatMap((runner, index) => {
      const rows = plan.rows[index] ?? 0;
      return rows === 0 ? [] : [{ ...runner, step: firstRows(runner.step, rows) }];
    });
  }

  private async runTogether(runners: readonly Runner[]): Promise<void> {
    this.running = runners;
    const begunMs = this.runtime.nowMs();
    const failures = await runPass(this.pass, runners, this.runtime);
    this.running = [];
    this.lastPassMs = this.runtime.nowMs() - begunMs;
    for (const { id, sequence } of runners.filter((runner) => !this.isOpen(runner))) {
      this.leave(id, sequence, this.leaving.delete(sequence));
    }
    this.retained.dropExcess();
    const failed = failures.filter(({ member }) => this.isOpen(member));
    const [first] = failed;
    if (first === undefined) return;
    const lackOfMemory = failed.find(({ error }) => isOutOfMemory(error));
    if (lackOfMemory !== undefined) return this.makeRoom(lackOfMemory.error);
    if (failed.length === 1) return this.fail(first.member.id, first.error);
    for (const { member } of failed) this.alone.add(member.id);
  }

  /** Frees memory by dropping one sequence; the failed step is then tried again. */
  private makeRoom(error: OdmoeError): void {
    if (this.retained.dropOldest()) return;
    const youngest = [...this.sequences.keys()].at(-1);
    if (youngest !== undefined) this.fail(youngest, error);
  }

  private withRoom<Result>(action: () => Result): Result {
    for (;;) {
      try {
        return action();
      } catch (error) {
        if (!isOutOfMemory(toOdmoeError(error)) || !this.retained.dropOldest()) throw error;
      }
    }
  }

  private isOpen({ id, sequence }: Runner): boolean {
    return this.sequences.get(id) === sequence;
  }

  private guard(id: number, action: () => void): void {
    try {
      this.withRoom(action);
    } catch (error) {
      this.fail(id, error);
    }
  }

  private fail(id: number, error: unknown): void {
    this.close(id, false);
    this.events.onFailure(id, toOdmoeError(error));
  }
}

function isOutOfMemory({ code }: OdmoeError): boolean {
  return code === 'DEVICE_OUT_OF_MEMORY';
}

function firstRows(step: RunnableStep, rows: number): RunnableStep {
  return { ...step, tokenIds: step.tokenIds.slice(0, rows) };
}

function addCounts(sum: AlignmentCounts, { counts }: ShadowSequence): void {
  sum.tokens += counts.tokens;
  sum.cacheRows += counts.cacheRows;
  sum.droppedRows += counts.droppedRows;
  sum.predictedPositions += counts.predictedPositions;
}

/**
 * A pure decision: which rows of which sequences the next pass of the shadow holds. An iteration of one row runs ahead of main, or beside it, and
 * main waits for its prediction: it is *urgent*. Chunks of a prefill, and positions that main has passed and that are run together to catch up, are
 * *bulk*: many rows, for which main does not wait.
 *
 * All urgent rows go into one pass. Bulk goes with them only if the pass before had to leave it out. So an iteration waits for no more rows of bulk
 * than one pass has: those of the pass that runs when its token comes, or those of its own pass, never both.
 */

/** The rows that a sequence could run now. */
export interface WantedRows {
  kind: 'prefill' | 'iterate';
  /** At least 1. */
  rows: number;
}

interface PassPlan {
  /** Rows for each sequence; 0: it waits for a later pass. */
  rows: number[];
  /** There was bulk, and the pass has none of it. */
  leavesBulkOut: boolean;
}

/** Share of a pass's rows that bulk gets if it was left out before, however many iterations there are. */
const BULK_SHARE = 1 / 8;

/** `wanted`: steps of the sequences that can run, in the order of their turns. `bulkWasLeftOut`: the pass before left it out. */
export function planShadowPass(wanted: readonly WantedRows[], maxRows: number, bulkWasLeftOut: boolean): PassPlan {
  const isUrgent = ({ kind, rows }: WantedRows): boolean => kind === 'iterate' && rows === 1;
  const hasBulk = !wanted.every(isUrgent);
  const urgentLimit = hasBulk && bulkWasLeftOut ? maxRows - Math.ceil(maxRows * BULK_SHARE) : maxRows;
  let left = urgentLimit;
  const rows = wanted.map((want): number => {
    if (!isUrgent(want) || left === 0) return 0;
    left -= 1;
    return 1;
  });
  const hasUrgent = left < urgentLimit;
  if (hasBulk && hasUrgent && !bulkWasLeftOut) return { rows, leavesBulkOut: true };
  left += maxRows - urgentLimit;
  wanted.forEach((want, index) => {
    if (isUrgent(want)) return;
    const granted = Math.min(left, want.rows);
    rows[index] = granted;
    left -= granted;
  });
  return { rows, leavesBulkOut: false };
}
