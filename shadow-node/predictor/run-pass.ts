import type { Pass, RouterChoice } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { RunnableStep } from './alignment.js';
import type { ShadowSequence } from './shadow-sequence.js';

/** A sequence of a pass, and its rows. */
export interface ShadowStep {
  readonly sequence: ShadowSequence;
  readonly step: RunnableStep;
}

/** The failure of one sequence of a pass. */
export interface PassFailure<Member extends ShadowStep> {
  readonly member: Member;
  readonly error: OdmoeError;
}

/** A member of the pass, whose rows begin at `firstRow`. */
interface Seat<Member> {
  readonly member: Member;
  readonly firstRow: number;
}

/**
 * Runs the steps of one or more sequences in one pass. Predictions come as each layer's router decides; a prefill gives none. If a sequence is
 * cancelled (ShadowSequence.cancel), the pass still runs to its end, unless all its sequences are. Returns the failures: of all sequences if the
 * device failed, or of one sequence. A sequence that has failed is as long as before the pass.
 */
export async function runPass<Member extends ShadowStep>(
  pass: Pass,
  members: readonly Member[],
  runtime: Pick<Runtime, 'nowMs' | 'nextTurn'>,
): Promise<PassFailure<Member>[]> {
  return new PassRun<Member>(pass, runtime).run(members);
}

class PassRun<Member extends ShadowStep> {
  private readonly failures = new Map<Member, OdmoeError>();
  private seats: Seat<Member>[] = [];
  private startedMs = 0;
  private forwarding = false;

  constructor(
    private readonly pass: Pass,
    private readonly runtime: Pick<Runtime, 'nowMs' | 'nextTurn'>,
  ) {}

  async run(members: readonly Member[]): Promise<PassFailure<Member>[]> {
    const begun = members.filter((member) =>
      this.guard(member, () => member.sequence.beginStep(member.step, () => this.cancelIfIdle())),
    );
    let firstRow = 0;
    for (const member of begun) {
      this.seats.push({ member, firstRow });
      firstRow += member.step.tokenIds.length;
    }
    let completed = false;
    try {
      completed = begun.length > 0 && (await this.runLayers());
    } catch (error) {
      for (const member of begun) this.failures.set(member, toOdmoeError(error));
    }
    for (const member of begun) {
      this.guard(member, () => member.sequence.endStep(completed && !this.failures.has(member)));
    }
    return [...this.failures].map(([member, error]) => ({ member, error }));
  }

  /** Returns false if the pass was cancelled. */
  private async runLayers(): Promise<boolean> {
    const { pass, seats } = this;
    this.startedMs = this.runtime.nowMs();
    const steps = seats.map(({ member }) => member.step);
    await pass.begin(
      seats.map(({ member }) => member.sequence.cache),
      Int32Array.from(steps.flatMap(({ tokenIds }, index) => tokenIds.map(() => index))),
      Int32Array.from(steps.flatMap(({ position, tokenIds }) => tokenIds.map((_, row) => position + row))),
      Int32Array.from(steps.flatMap(({ tokenIds }) => tokenIds)),
    );
    // A message of main may have come meanwhile, and cancel() ends a forward only.
    if (this.isIdle) return false;
    const iterates = steps.some(({ kind }) => kind === 'iterate');
    try {
      this.forwarding = true;
      await pass.forward(iterates ? (layer, choice) => this.takeChoice(layer, choice) : null);
    } catch (error) {
      if (!this.isIdle || toOdmoeError(error).code !== 'CANCELLED') throw error;
    } finally {
      this.forwarding = false;
    }
    if (this.isIdle) return false;
    await this.guess();
    return true;
  }

  private takeChoice(layer: number, { experts, weights }: RouterChoice): void {
    const runUs = Math.round((this.runtime.nowMs() - this.startedMs) * 1000);
    const rows = this.seats.reduce((sum, { member }) => sum + member.step.tokenIds.length, 0);
    const perRow = experts.length / rows;
    for (const { member, firstRow } of this.seats) {
      const end = firstRow + member.step.tokenIds.length;
      const range = [firstRow * perRow, end * perRow] as const;
      const own = { experts: experts.subarray(...range), weights: weights.subarray(...range) };
      this.guard(member, () => member.sequence.takeChoice(layer, own, runUs));
    }
  }

  /** Guesses the next token of those sequences that need one. */
  private async guess(): Promise<void> {
    const guessing: Seat<Member>[] = [];
    for (const seat of this.seats) {
      this.guard(seat.member, () => {
        if (seat.member.sequence.endLayers()) guessing.push(seat);
      });
    }
    if (guessing.length === 0) return;
    const lastRows = guessing.map(({ member, firstRow }) => firstRow + member.step.tokenIds.length - 1);
    const logits = await this.pass.logits(Int32Array.from(lastRows));
    const takenUs = (this.runtime.nowMs() - this.startedMs) * 1000;
    const vocabSize = logits.length / guessing.length;
    for (const [index, { member }] of guessing.entries()) {
      const own = logits.subarray(index * vocabSize, (index + 1) * vocabSize);
      try {
        await member.sequence.takeLogits(own, takenUs, this.runtime);
      } catch (error) {
        this.failed(member, error);
      }
    }
  }

  /** True if the pass is of use for none of its sequences. */
  private get isIdle(): boolean {
    return this.seats.every(({ member }) => member.sequence.isCancelled);
  }

  private cancelIfIdle(): void {
    if (this.forwarding && this.isIdle) this.pass.cancel();
  }

  /** Runs the action. A failure concerns this sequence alone, for which the pass is then of no use. Returns false if it failed. */
  private guard(member: Member, action: () => void): boolean {
    try {
      action();
      return true;
    } catch (error) {
      this.failed(member, error);
      return false;
    }
  }

  private failed(member: Member, error: unknown): void {
    this.failures.set(member, toOdmoeError(error));
    member.sequence.cancel();
  }
}
