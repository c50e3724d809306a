import type { MemberRows, PassMember } from '../pass/pass-member.js';

/** Rows of the drafter with which the model's own head makes drafts for a sequence. */
export interface DrafterRows {
  /** Position of the first row that it has, or that it is going to have; Infinity: the first one that a pass writes from now on. */
  readonly first: number;
  /** Number of its rows; null: it has no memory, for passes neither. */
  readonly held: number | null;
  /** It gives this memory back soon, by itself: its sequence was preempted. */
  readonly isLeaving: boolean;
}

/** A sequence as the scheduler sees it. The scheduler alone changes `written`, by running passes. */
export interface BatchMember extends PassMember {
  /** The client that sent the request: API keys share main fairly. Empty: no particular client. */
  readonly client: string;
  /** Tokens so far: prompt, answer, and the drafts that are to be verified. */
  readonly tokenIds: readonly number[];
  /** Positions whose rows the sequence's memory holds. */
  readonly written: number;
  /** Rows from this position on are to give logits. */
  readonly wantedFrom: number;
  /** Rows from this position on belong to the answer, and never ran before (drafts apart). */
  readonly decodeFrom: number;
  /** Null, or left out: it has no drafter and gets none. */
  readonly drafterRows?: DrafterRows | null;
  /** A worker that took part in its rows gave wrong values: the rows are neither retained nor continued. */
  readonly isTainted: boolean;
  /** The worker gave wrong values. The member finds out whether it took part in any of its rows (isTainted). */
  distrust(workerId: string): void;
  /** If its rows are tainted: gives up their memory, as preempt does, and drops all that follows from them. Not while a pass runs on it. */
  computeAnew(): void;
  /** Gives up all its memory: `written` is 0 then, and passes compute the rows again, to the same bits. Not while a pass runs on it. */
  preempt(): void;
}

/** The owner of the memory for rows (main-node/room), which is asked between passes. */
export interface SequenceRoom {
  /**
   * Makes room for these rows, in the given order. It drops prefixes that nobody uses, the least recently used first; then it preempts the youngest
   * sequences, whether their rows are among these or not. Returns those of the rows that can run now; a member without any waits. No member is
   * rejected here: a sequence that can never fit was refused at its admission. `isRunning`: passes that run side by side work on the member, which
   * keeps its memory.
   */
  prepare(rows: readonly MemberRows[], isRunning: (member: PassMember) => boolean): MemberRows[];
}
