import type { PassRow, RowRun } from '../../shared/wire/messages.js';
import type { ActivatedRow } from './activated-experts.js';
import type { FirstLayerAhead } from './first-layer-ahead.js';
import type { MemberRows, PassMember } from './pass-member.js';
import type { ObservedPass } from './pass-observer.js';
import type { Announcements } from './announcements.js';

/** Whose a row of a pass is. */
export interface RowOwner {
  member: PassMember;
  position: number;
  /** Of the sequence's answer, and run for the first time. */
  isAnswer: boolean;
}

/** One pass at work. */
export interface PassContext {
  readonly pass: PassRow;
  readonly rows: readonly RowRun[];
  readonly members: readonly MemberRows[];
  /** Of each row. */
  readonly owners: readonly RowOwner[];
  /** Rows of one sequence's answer and nothing else: what a pass is where nobody else asks. */
  readonly isAlone: boolean;
  readonly told: Announcements;
  /** Null: nobody guesses the sequence's first layers. */
  readonly firstLayers: (member: PassMember) => FirstLayerAhead | null;
  readonly signal: AbortSignal;
  readonly observed: ObservedPass | null;
  /** Per layer the longest that an expert waited for its load, summed. */
  stallUs: number;
}

export function ownersOf(members: readonly MemberRows[]): RowOwner[] {
  return members.flatMap(({ member, position, tokenIds, decodeFrom }) =>
    tokenIds.map((_, index) => ({ member, position: position + index, isAnswer: index >= decodeFrom })),
  );
}

/** The worker has run an expert on these rows of the pass. */
export function noteProvenance(owners: readonly RowOwner[], rows: readonly ActivatedRow[], workerId: string): void {
  for (const { row } of rows) {
    const owner = owners[row];
    owner?.member.provenance.took(workerId, owner.position);
  }
}

/** Whose these rows are, as far as `counts` says of a row: each once. */
export function membersOf(
  owners: readonly RowOwner[],
  rows: readonly ActivatedRow[],
  counts: (owner: RowOwner) => boolean,
): Set<PassMember> {
  const members = new Set<PassMember>();
  for (const { row } of rows) {
    const owner = owners[row];
    if (owner !== undefined && counts(owner)) members.add(owner.member);
  }
  return members;
}
