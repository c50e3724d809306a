import type { PassRow, RowRun } from '../../shared/wire/messages.js';
import type { ActivatedRow } from './activated-experts.js';
import type { FirstLayerAhead } from './first-layer-ahead.js';
import type { MemberRows, PassMember } from './pass-member.js';
import type { ObservedPass } from './pass-observer.js';
import type { Announcements } from './announcements.js';

/** The owner of a row in a pass. */
export interface RowOwner {
  member: PassMember;
  position: number;
  /** The row belongs to the sequence's answer and runs for the first time. */
  isAnswer: boolean;
}

/** One running pass. */
export interface PassContext {
  readonly pass: PassRow;
  readonly rows: readonly RowRun[];
  readonly members: readonly MemberRows[];
  /** The owner of each row. */
  readonly owners: readonly RowOwner[];
  /** The pass has rows of one sequence's answer and nothing else, as is the case while there is no other request. */
  readonly isAlone: boolean;
  readonly told: Announcements;
  /** Returns null if nothing announces the sequence's first layers ahead. */
  readonly firstLayers: (member: PassMember) => FirstLayerAhead | null;
  readonly signal: AbortSignal;
  readonly observed: ObservedPass | null;
  /** Sum over the layers of the longest time that an expert of the layer waited for its load. */
  stallUs: number;
}

export function ownersOf(members: readonly MemberRows[]): RowOwner[] {
  return members.flatMap(({ member, position, tokenIds, decodeFrom }) =>
    tokenIds.map((_, index) => ({ member, position: position + index, isAnswer: index >= decodeFrom })),
  );
}

/** Notes that the worker has run an expert on these rows of the pass. */
export function noteProvenance(owners: readonly RowOwner[], rows: readonly ActivatedRow[], workerId: string): void {
  for (const { row } of rows) {
    const owner = owners[row];
    owner?.member.provenance.took(workerId, owner.position);
  }
}

/** The owners of those of these rows for which `counts` returns true, each owner once. */
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
