import type { HeadDrafter } from '../../engine/generation/draft-head.js';
import type { DrafterRows } from '../batching/batch-member.js';

/** The methods of the head by which a sequence drafts. */
export type Drafter = Pick<HeadDrafter, 'feed' | 'draft' | 'dispose'>;

/** Most rows that are held in passes of the head; a prompt that comes faster than the head runs loses its oldest ones. */
const MOST_HELD_PASSES = 32;

export interface HeadSizes {
  readonly hiddenSize: number;
  /** Rows of one pass of the head. */
  readonly passRows: number;
  /**
   * Most rows with which the head begins, the last ones; it then runs only when drafts are asked for. A number is set where each row costs the work of
   * others. The head's attention misses the rows before, so that the first drafts behind a long prompt may be worse. Null: the head is fed all rows.
   */
  readonly firstRows: number | null;
}

/**
 * Drafts for one sequence from the model's own head (multi-token prediction). Passes give the states of the rows that they ran, rows of drafts included;
 * the head is fed with a row once the token behind it is known, so with no row of a draft that proved wrong. It runs when drafts are asked for, and
 * before only for as many rows as one of its passes takes.
 */
export class MtpDrafts {
  /** States of rows that the head has not been fed, by position. */
  private readonly held = new Map<number, Float32Array>();
  /** Null: nothing has been fed yet, or the head has failed. */
  private drafter: Drafter | null = null;
  /** Position of the head's first row: rows that the sequence took over from another one have no states here. */
  private first = 0;
  private fed = 0;
  private work: Promise<void> = Promise.resolve();
  private failure: { thrown: unknown } | null = null;
  /** The sequence was preempted while the head had rows: the drafter goes once the head does not run, and is fed no more until then. */
  private isLeaving = false;

  constructor(
    /** Called at the first row that is fed. */
    private readonly createDrafter: () => Drafter,
    private readonly sizes: HeadSizes,
    /** The tokens of the prompt, and those that main has sampled. */
    private readonly knownTokens: () => readonly number[],
    /** Called when the memory of the head has been given back before the end. */
    private readonly onFreed: () => void = () => undefined,
  ) {}

  get rows(): DrafterRows {
    const { drafter, isLeaving, fed } = this;
    const goesOn = drafter !== null && !isLeaving;
    const first = goesOn ? this.first : Math.min(Infinity, ...this.held.keys());
    return { first, held: drafter === null ? null : fed, isLeaving };
  }

  /** Most rows of a pass, its last ones, that the head can still be fed. */
  get wantedRows(): number {
    return this.failure === null ? (this.sizes.firstRows ?? Infinity) : 0;
  }

  /** A pass has run the rows from `position` on. `states`: the last ones behind the final norm, rows x hiddenSize. */
  takeStates(position: number, states: Float32Array): void {
    if (this.failure !== null) return;
    const { hiddenSize, passRows, firstRows } = this.sizes;
    for (let row = 0; row * hiddenSize < states.length; row += 1) {
      // A row that is computed again becomes the youngest one.
      this.held.delete(position + row);
      this.held.set(position + row, states.slice(row * hiddenSize, (row + 1) * hiddenSize));
    }
    for (const oldest of this.held.keys()) {
      if (this.held.size <= mostHeldRows(this.sizes)) break;
      this.held.delete(oldest);
    }
    if (firstRows === null && this.held.size >= passRows) this.work = this.work.then(() => this.feedEarly());
  }

  /** Tokens that probably follow the last known one, `most` at most. Throws the errors of the head's device; it drafts no more after one. */
  draft(most: number): Promise<number[]> {
    const drafting = this.work.then(() => this.draftNow(most));
    this.work = drafting.then(
      () => undefined,
      () => undefined,
    );
    return drafting;
  }

  /** Gives the memory of the head back once it does not run; its rows begin anew with those that come from now on. */
  forget(): void {
    this.held.clear();
    if (this.drafter === null || this.isLeaving) return;
    this.isLeaving = true;
    this.work = this.work.then(() => {
      this.isLeaving = false;
      this.giveBack();
    });
  }

  private async draftNow(most: number): Promise<number[]> {
    if (this.failure !== null) throw this.failure.thrown;
    try {
      await this.feedKnown();
      const isCurrent = this.first + this.fed === this.knownTokens().length - 1;
      return this.drafter !== null && isCurrent && this.fed > 0 ? await this.drafter.draft(most) : [];
    } catch (thrown) {
      this.fail(thrown);
      throw thrown;
    }
  }

  /** Call it when nothing else runs. */
  async end(): Promise<void> {
    await this.work;
    this.held.clear();
    this.dispose();
  }

  /** An error is thrown where drafts are asked for. */
  private async feedEarly(): Promise<void> {
    // An earlier call may have fed the rows of this one.
    if (this.held.size < this.sizes.passRows) return;
    try {
      await this.feedKnown();
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  /** Begins anew behind an error, with the rows that come from now on. */
  restart(): void {
    this.failure = null;
  }

  private fail(thrown: unknown): void {
    this.failure ??= { thrown };
    this.release();
  }

  private release(): void {
    this.held.clear();
    this.giveBack();
  }

  private giveBack(): void {
    const { drafter } = this;
    this.dispose();
    if (drafter !== null) this.onFreed();
  }

  private dispose(): void {
    this.drafter?.dispose();
    this.drafter = null;
    this.first += this.fed;
    this.fed = 0;
  }

  private async feedKnown(): Promise<void> {
    if (this.isLeaving) return;
    const known = this.knownTokens();
    const end = known.length - 1;
    const begin = this.beginOfRows(end);
    if (begin >= end) return;
    if (begin !== this.first + this.fed) {
      this.first = begin;
      this.fed = 0;
    }
    const states: Float32Array[] = [];
    for (let position = begin; position < end; position += 1) {
      const state = this.held.get(position);
      if (state === undefined) break;
      this.held.delete(position);
      states.push(state);
    }
    const { hiddenSize } = this.sizes;
    const rows = new Float32Array(states.length * hiddenSize);
    for (const [row, state] of states.entries()) rows.set(state, row * hiddenSize);
    const tokens = known.slice(begin + 1, begin + 1 + states.length);
    const row = this.fed;
    this.fed += states.length;
    this.drafter ??= this.createDrafter();
    await this.drafter.feed(row, rows, tokens);
    await this.feedKnown();
  }

  /**
   * The position of the first row of those before `end` that the head is fed next; `end`: none. Drops rows that are computed again, and that the head has;
   * and rows behind which others are missing, since a head that begins anew behind a gap forgets them.
   */
  private beginOfRows(end: number): number {
    const headEnd = this.first + this.fed;
    for (const position of [...this.held.keys()]) {
      if (position >= this.first && position < headEnd) this.held.delete(position);
    }
    const waiting = [...this.held.keys()].filter((position) => position < end).sort((a, b) => b - a);
    const last = waiting[0] ?? end;
    let begin = waiting.find((position, place) => waiting[place + 1] !== position - 1) ?? end;
    if (begin !== headEnd) begin = Math.max(begin, last + 1 - (this.sizes.firstRows ?? Infinity));
    for (const position of waiting) if (position < begin) this.held.delete(position);
    return begin;
  }
}

/** Behind its first rows a head is fed those of the passes until drafts are asked for again. */
function mostHeldRows({ passRows, firstRows }: HeadSizes): number {
  return firstRows === null ? MOST_HELD_PASSES * passRows : firstRows + passRows;
}
