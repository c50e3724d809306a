import type { Predict } from '../../shared/wire/messages.js';
import type { MemberRows } from './pass-member.js';
import type { Announcements } from './announcements.js';

interface ToldRows {
  told: Announcements;
  rows: MemberRows;
}

/** The running passes, in which an arriving prediction that main has to announce finds its pass. */
export class AnnouncedPasses {
  private readonly bySequence = new Map<number, ToldRows>();

  /** Announces at once the predictions that have come already for the pass's rows. */
  begin(told: Announcements, members: readonly MemberRows[], layers: number): void {
    for (const rows of members) this.bySequence.set(rows.member.id, { told, rows });
    for (let layer = 0; layer < layers; layer++) {
      const wishes = members.flatMap((rows) => {
        const prediction = expectedBy(rows, layer);
        return prediction?.mainAnnounces === true ? [{ experts: prediction.experts, run: runOf(rows) }] : [];
      });
      if (wishes.length > 0) told.tell(layer, wishes);
    }
  }

  end(members: readonly MemberRows[]): void {
    for (const { member } of members) this.bySequence.delete(member.id);
  }

  /** Takes a prediction that has not been announced to the workers. If its pass does not run yet, `begin` announces it later. */
  arrived({ pass, layer, experts }: Predict): void {
    const running = this.bySequence.get(pass.sequence);
    if (running === undefined || decodePosition(running.rows) !== pass.position) return;
    running.told.tell(layer, [{ experts, run: runOf(running.rows) }]);
  }
}

/** The first position of the member's rows that belongs to its answer; null: no row does. */
export function decodePosition({ position, tokenIds, decodeFrom }: MemberRows): number | null {
  return decodeFrom < tokenIds.length ? position + decodeFrom : null;
}

/** The prediction for those of the member's rows that belong to its answer. */
export function expectedBy(rows: MemberRows, layer: number): Predict | null {
  const position = decodePosition(rows);
  return position === null ? null : rows.member.predictions.expected(position, layer);
}

export function runOf({ member, position, tokenIds }: MemberRows): {
  sequence: number;
  position: number;
  rows: number;
} {
  return { sequence: member.id, position, rows: tokenIds.length };
}
