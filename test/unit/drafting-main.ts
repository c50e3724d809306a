import type { MainToken } from '../../shadow-node/predictor/alignment.js';
import type { Draft } from '../../shadow-node/predictor/shadow-sequence.js';

export interface DraftingMainOptions {
  promptTokens: number;
  maxPositions: number;
  optimistic: boolean;
  /** Number of positions that main wants in a pass. */
  rows: number;
  /** Main's token at a position. */
  token: (position: number) => number;
}

/** Main as shadow sees it: passes, verified drafts, branches. Every call of next() is main's next message. */
export class DraftingMain {
  /** Passes by first position, with their rows, without rejected rows. */
  readonly passes: { begin: number; rows: number }[] = [];
  private pass: { begin: number; tokens: number[] } | null = null;
  private waiting = false;
  private branch = 0;
  private readonly drafts = new Map<number, Draft>();

  /** Positions whose token main has sent. */
  reported: number;

  constructor(private readonly options: DraftingMainOptions) {
    this.reported = options.promptTokens;
  }

  takeDraft(draft: Draft): void {
    this.drafts.set(draft.position, draft);
  }

  /** Null: no position is left. */
  next(): MainToken | null {
    if (this.waiting) return this.beginPass(this.reported - 1);
    const position = this.reported;
    if (position >= this.options.maxPositions) return null;
    this.reported += 1;
    const drafted = this.pass?.tokens[position - this.pass.begin];
    if (drafted === this.options.token(position)) return this.announcement(position, 0);
    const guessed = drafted ?? this.drafts.get(position)?.tokenId;
    if (guessed !== undefined && guessed !== this.options.token(position)) {
      this.branch += 1;
      this.drafts.clear();
    }
    this.finishPass(position);
    if (this.options.optimistic || this.options.rows === 1) return this.beginPass(position);
    this.waiting = true;
    return this.announcement(position, 0);
  }

  private finishPass(end: number): void {
    if (this.pass === null) return;
    this.passes.push({ begin: this.pass.begin, rows: end - this.pass.begin });
    this.pass = null;
  }

  private beginPass(begin: number): MainToken {
    this.waiting = false;
    const tokens = [this.options.token(begin)];
    for (let position = begin + 1; tokens.length < this.options.rows; position += 1) {
      const draft = this.drafts.get(position);
      if (draft === undefined || draft.passPosition !== begin || draft.branch !== this.branch) break;
      if (position >= this.options.maxPositions) break;
      tokens.push(draft.tokenId);
    }
    this.pass = { begin, tokens };
    return this.announcement(begin, tokens.length);
  }

  private announcement(position: number, rows: number): MainToken {
    const tokenId = this.options.token(position);
    return { position, tokenId, rows, nextRows: this.options.rows, branch: this.branch };
  }
}
