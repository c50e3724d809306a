/** A sequence that runs, as far as memory goes. */
export interface RoomMember {
  readonly id: number;
  /** It has memory for rows. */
  readonly holds: boolean;
  /** A pass runs on it: it cannot give memory back now. */
  readonly isBusy: boolean;
  /** What its rows of the next pass newly take; null: it has none in it. */
  readonly needBytes: number | null;
  /** What all its tokens so far take beyond what it has. */
  readonly dueBytes: number;
}

export interface RoomState {
  /** For rows of all sequences. */
  readonly limitBytes: number;
  /** Taken, shared blocks once: by sequences and by prefixes. */
  readonly heldBytes: number;
  /** Of these: what no running sequence uses, or less. */
  readonly prefixBytes: number;
  readonly prefixes: number;
  /** What one block of a sequence takes. */
  readonly blockBytes: number;
  /** Who has no rows in the pass has had none for long: where nobody could run, it gives its memory back, however old. */
  readonly mayTakeFromIdle: boolean;
  /** In the order in which they were admitted, the oldest first. */
  readonly members: readonly RoomMember[];
}

/** What is to be done. After a drop, or when memory has been given back, the state is looked at again. */
export type RoomStep =
  | { readonly kind: 'run'; readonly ids: readonly number[] }
  | { readonly kind: 'drop' }
  | { readonly kind: 'giveBack'; readonly id: number };

/**
 * Makes room for the rows of a pass. Sequences get theirs in the order of their age, and take room from prefixes first, then from those
 * that are younger, the youngest first: so the oldest always gets on, and all do in the end. One that has none waits, and nobody younger
 * takes room before it does. A sequence that holds nothing begins (again) only where there is room for all its tokens so far, for what
 * the others' tokens are still going to take, and for one block more: otherwise it would have to go again at once.
 */
export function planRoom(state: RoomState): RoomStep {
  const { limitBytes, heldBytes, prefixBytes, prefixes, blockBytes, mayTakeFromIdle, members } = state;
  const holders = members.filter(({ holds }) => holds);
  const dueBytes = holders.reduce((sum, holder) => sum + holder.dueBytes, 0);
  const ids: number[] = [];
  let [takenBytes, entered, somebodyWaits] = [0, 0, false];
  for (const [place, { id, holds, needBytes, dueBytes: ownDueBytes }] of members.entries()) {
    if (needBytes === null) continue;
    const isOldest = place === 0;
    const enters = !holds && !isOldest && holders.length + entered > 0;
    const laterBytes = dueBytes + blockBytes;
    const wantedBytes = takenBytes + (enters ? ownDueBytes + laterBytes : needBytes);
    if (heldBytes + wantedBytes > limitBytes && !somebodyWaits) {
      const wouldFit = heldBytes - prefixBytes + wantedBytes <= limitBytes;
      if (prefixes > 0 && (holds || isOldest || wouldFit)) return { kind: 'drop' };
      const youngest = members.slice(place + 1).findLast((other) => other.holds && !other.isBusy);
      if (youngest !== undefined) return { kind: 'giveBack', id: youngest.id };
      // Room will be there as soon as a pass of another one has ended.
      somebodyWaits = !isOldest || holders.some((other) => other.id !== id && other.isBusy);
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
  return idle === undefined ? { kind: 'run', ids } : { kind: 'giveBack', id: idle.id };
}
