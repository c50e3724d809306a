import type { Predict } from '../../shared/wire/messages.js';
import type { MemberRows } from './pass-member.js';
import type { Announcements } from './announcements.js';

interface ToldRows {
  told: Announcements;
  rows: MemberRows;
}

/** The passes at work, for whoever hears of a prediction that main is to tell the workers. */
export class AnnouncedPasses {
  private readonly bySequence = new Map<number, ToldRows>();

  /** What has come so far for the pass's rows is told at once. */
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

  /** A prediction has come that the workers have not been told of. One for a pass that does not run yet is told when that begins. */
  arrived({ pass, layer, experts }: Predict): void {
    const running = this.bySequence.get(pass.sequence);
    if (running === undefined || decodePosition(running.rows) !== pass.position) return;
    running.told.tell(layer, [{ experts, run: runOf(running.rows) }]);
  }
}

/** The first position of the member's rows that are of its answer; null: there are none. */
export function decodePosition({ position, tokenIds, decodeFrom }: MemberRows): number | null {
  return decodeFrom < tokenIds.length ? position + decodeFrom : null;
}

/** What has been predicted for the member's rows of its answer. */
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
