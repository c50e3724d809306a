import type { HeadDrafter } from '../../engine/generation/draft-head.js';

/** What the drafts of a sequence need of its head. */
export type Drafter = Pick<HeadDrafter, 'feed' | 'draft' | 'dispose'>;

/**
 * Drafts for one sequence from the model's own head (multi-token prediction). Passes give the states of the rows that they ran, rows of drafts included;
 * the head is fed with a row once the token behind it is known, so with no row of a draft that proved wrong.
 */
export class MtpDrafts {
  /** States of rows that the head has not been fed, by position. */
  private readonly held = new Map<number, Float32Array>();
  /** Position of the head's first row: rows that the sequence took over from another one have no states here. */
  private first = 0;
  private fed = 0;
  private work: Promise<void> = Promise.resolve();
  private failure: { thrown: unknown } | null = null;

  constructor(
    private readonly drafter: Drafter,
    private readonly hiddenSize: number,
    /** The tokens of the prompt, and those that main has sampled. */
    private readonly knownTokens: () => readonly number[],
  ) {}

  /** A pass has run the rows from `position` on. `states`: the last ones behind the final norm, rows x hiddenSize. */
  takeStates(position: number, states: Float32Array): void {
    const { hiddenSize } = this;
    for (let row = 0; row * hiddenSize < states.length; row += 1) {
      this.held.set(position + row, states.slice(row * hiddenSize, (row + 1) * hiddenSize));
    }
    // Of a prompt the next tokens are known; so its states are not all kept until its end.
    this.work = this.work.then(() => this.feedKnown()).catch((thrown: unknown) => void (this.failure ??= { thrown }));
  }

  /** Tokens that probably follow the last known one, `most` at most. Throws the errors of the head's device. */
  async draft(most: number): Promise<number[]> {
    await this.work;
    if (this.failure !== null) throw this.failure.thrown;
    await this.feedKnown();
    const isCurrent = this.first + this.fed === this.knownTokens().length - 1;
    return isCurrent && this.fed > 0 ? this.drafter.draft(most) : [];
  }

  /** Call it when nothing else runs. */
  async end(): Promise<void> {
    await this.work;
    this.held.clear();
    this.drafter.dispose();
  }

  private async feedKnown(): Promise<void> {
    const known = this.knownTokens();
    const end = known.length - 1;
    const [begin] = this.waitingPositions();
    if (begin === undefined || begin >= end) return;
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
    const rows = new Float32Array(states.length * this.hiddenSize);
    for (const [row, state] of states.entries()) rows.set(state, row * this.hiddenSize);
    const tokens = known.slice(begin + 1, begin + 1 + states.length);
    const row = this.fed;
    this.fed += states.length;
    await this.drafter.feed(row, rows, tokens);
    await this.feedKnown();
  }

  /** Positions of held states in rising order. Rows that are computed again, and that the head has, are dropped. */
  private waitingPositions(): number[] {
    for (const position of [...this.held.keys()]) {
      if (position >= this.first && position < this.first + this.fed) this.held.delete(position);
    }
    return [...this.held.keys()].sort((a, b) => a - b);
  }
}
