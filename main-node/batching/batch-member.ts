import type { MemberRows, PassMember } from '../pass/pass-member.js';

/** A sequence as the scheduler knows it. The scheduler alone changes `written` by running passes. */
export interface BatchMember extends PassMember {
  /** Who asks: API keys share main fairly. Empty: nobody in particular. */
  readonly client: string;
  /** Tokens so far: prompt, answer, and the drafts that are to be verified. */
  readonly tokenIds: readonly number[];
  /** Positions whose rows the sequence's memory holds. */
  readonly written: number;
  /** Rows from this position on are wanted with their logits. */
  readonly wantedFrom: number;
  /** Rows from this position on are of the answer, and were never run before (drafts apart). */
  readonly decodeFrom: number;
  /** A worker that took part in its rows lied: they are neither kept nor gone on from. */
  readonly isTainted: boolean;
  /** The worker lied. Whether it took part in any rows is the member's to say (isTainted). */
  distrust(workerId: string): void;
  /** Where its rows are tainted: gives them back, as giveMemoryBack, and none of what they have led to counts. Not while a pass runs on it. */
  computeAnew(): void;
  /** Gives all memory back: `written` is 0 then, and passes compute the rows again, to the same bits. Not while a pass runs on it. */
  giveMemoryBack(): void;
}

/** Where memory for rows comes from (main-node/room): asked between passes. */
export interface SequenceRoom {
  /**
   * Makes room for these rows, in the order in which they are named: drops prefixes that nobody uses, the least recently used first;
   * then the youngest sequences give their memory back, named or not. Returns those of the rows that can run now; one that has none waits.
   * Rejects nobody: what can never fit was refused when it was admitted. `isRunning`: passes that run side by side work on these, which keep
   * their memory.
   */
  prepare(rows: readonly MemberRows[], isRunning: (member: PassMember) => boolean): MemberRows[];
}
