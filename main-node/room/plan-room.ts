/** A running sequence, with its memory. */
export interface RoomMember {
  readonly id: number;
  /** It has memory for rows. */
  readonly holds: boolean;
  /** A pass runs on it: it cannot be preempted now. */
  readonly isBusy: boolean;
  /** Bytes that its rows of the next pass newly take; null: it has no rows in that pass. */
  readonly needBytes: number | null;
  /** Bytes that all its tokens so far take beyond those that count as held. */
  readonly dueBytes: number;
}

export interface RoomState {
  /** Most bytes for the rows of all sequences. */
  readonly limitBytes: number;
  /** Bytes that sequences, prefixes and drafters hold, or drafters are about to hold; shared row blocks count once. */
  readonly heldBytes: number;
  /** The part of these bytes that comes back soon by itself: drafters of preempted sequences. It is waited for rather than taken from others. */
  readonly returningBytes: number;
  /** The part of these bytes that no running sequence uses, or less. */
  readonly prefixBytes: number;
  readonly prefixes: number;
  /** Bytes of one row block of a sequence. */
  readonly rowBlockBytes: number;
  /**
   * True if members without rows in the pass have had none for long: when no member could run, such a member is preempted, however old it
   * is.
   */
  readonly mayTakeFromIdle: boolean;
  /** In the order of their admission, the oldest first. */
  readonly members: readonly RoomMember[];
}

/** The next step. After a drop, or when a sequence has been preempted, the new state is planned again. */
export type RoomStep =
  | { readonly kind: 'run'; readonly ids: readonly number[] }
  | { readonly kind: 'drop' }
  | { readonly kind: 'preempt'; readonly id: number };

/**
 * Makes room for the rows of a pass. Sequences get theirs in the order of their age. They take room from prefixes first, then from younger sequences,
 * the youngest first: so the oldest always gets on, and all do in the end. If a sequence gets no room it waits, and no younger one takes room before
 * it does. A sequence that holds nothing begins (again) only if there is room for all its tokens so far, for the tokens of the others that are still
 * to be written, and for one row block more: otherwise it would be preempted again at once.
 */
export function planRoom(state: RoomState): RoomStep {
  const { limitBytes, heldBytes, prefixBytes, returningBytes, prefixes, rowBlockBytes, mayTakeFromIdle, members } =
    state;
  const holders = members.filter(({ holds }) => holds);
  const dueBytes = holders.reduce((sum, holder) => sum + holder.dueBytes, 0);
  const ids: number[] = [];
  let [takenBytes, entered, somebodyWaits] = [0, 0, false];
  for (const [place, { id, holds, needBytes, dueBytes: ownDueBytes }] of members.entries()) {
    if (needBytes === null) continue;
    const isOldest = place === 0;
    const enters = !holds && !isOldest && holders.length + entered > 0;
    const laterBytes = dueBytes + rowBlockBytes;
    const wantedBytes = takenBytes + (enters ? ownDueBytes + laterBytes : needBytes);
    const lackedBytes = heldBytes + wantedBytes - limitBytes;
    if (lackedBytes > 0 && !somebodyWaits) {
      if (lackedBytes > returningBytes) {
        const wouldFit = lackedBytes <= prefixBytes + returningBytes;
        if (prefixes > 0 && (holds || isOldest || wouldFit)) return { kind: 'drop' };
        const youngest = members.slice(place + 1).findLast((other) => other.holds && !other.isBusy);
        if (youngest !== undefined) return { kind: 'preempt', id: youngest.id };
      }
      // There will be room as soon as another member's pass has ended, or memory has come back.
      const comes = returningBytes > 0 || holders.some((other) => other.id !== id && other.isBusy);
      somebodyWaits = !isOldest || comes;
    }
    const runs = somebodyWaits ? needBytes === 0 && holds : true;
    if (!runs) continue;
    ids.push(id);
    takenBytes += enters ? ownDueBytes : needBytes;
    if (enters) entered += 1;
  }
  const isStuck = mayTakeFromIdle && ids.length === 0 && members.some(({ needBytes }) => needBytes !== null);
  const idle = isStuck
    ? members.findLast((member) => member.holds && !member.isBusy && member.needBytes === null)
    : undefined;
  return idle === undefined ? { kind: 'run', ids } : { kind: 'preempt', id: idle.id };
}
