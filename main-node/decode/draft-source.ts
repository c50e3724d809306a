import type { DrafterRows } from '../batching/batch-member.js';
import type { DraftMaker } from '../drafting/choose-drafts.js';

/** Tokens that may follow, and as many probabilities, 0 to 1: that a token equals main's if all tokens before it do. */
export interface DraftProposal {
  readonly tokenIds: readonly number[];
  readonly chances: readonly number[];
}

export const NO_DRAFTS: DraftProposal = { tokenIds: [], chances: [] };

/** The time that drafts take, and what is expected of them. */
export interface DraftEffort {
  /** Milliseconds for each draft, over all answers; 0: not measured yet. */
  readonly draftMs: number;
  /** Chances of the drafts that it would make now, without making them; at most `limit`. None: it has no drafts, or they are right too seldom. */
  expected(limit: number): readonly number[];
}

/** A maker of drafts on main, for one answer. Its drafts decide how fast the answer is and nothing else. */
export interface DraftSource {
  readonly maker: DraftMaker;
  /** Its drafts take time that delays the pass: it is asked only where they are expected to pay. Left out: they cost nearly nothing. */
  readonly effort?: DraftEffort;
  /** Its memory for rows; null: it has none any more. Left out: it never has any. */
  readonly drafterRows?: DrafterRows | null;
  /** The prompt; called once, before all else. */
  begin(promptIds: readonly number[]): void;
  /** Main has chosen the token at this position. Each position of the answer comes once, in order; the answer's last token does not come. */
  settled(position: number, tokenId: number): void;
  /** A pass has run main's token at `position` and drafts after it. */
  passed?(position: number, tokenIds: readonly number[]): void;
  /** Drafts for the positions after `position`, whose token was the last that came; at most `limit`. It may end early when the signal aborts. */
  propose(position: number, limit: number, signal: AbortSignal): DraftProposal | Promise<DraftProposal>;
  /** Most rows of a pass, its last ones, whose states the source can use at present. Left out: all. */
  readonly statesWanted?: number;
  /** A pass has run the rows from `position` on. `states`: their last ones behind the final norm. Left out: passes need not read them. */
  takeStates?(position: number, states: Float32Array): void;
  /** The rows of the answer have given up their memory, and are going to run again: the source gives up its own, perhaps later. Left out: it has none. */
  preempted?(): void;
  /** The answer has ended. */
  end?(): void | Promise<void>;
}
