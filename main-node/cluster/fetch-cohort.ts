/** A connected worker that fetches its experts and is not placed yet. */
export interface FetchingMember {
  id: string;
  /** It has all that the prospect announced to it needs. */
  ready: boolean;
  /** Others that were ready have waited for it long enough. */
  late: boolean;
  /** It says that it cannot go on. */
  troubled: boolean;
}

/** Those that are waited for: they come into the placement together. Who lags behind comes when it is ready. */
export function cohort<Member extends FetchingMember>(members: readonly Member[]): Member[] {
  return members.filter(({ ready, late, troubled }) => ready || (!late && !troubled));
}

/**
 * Who is taken into the placement now: the whole cohort once all of it is ready. Taking one after the other would give the first ones
 * more to do than they have fetched for.
 */
export function admitted<Member extends FetchingMember>(members: readonly Member[]): Member[] {
  const together = cohort(members);
  return together.every(({ ready }) => ready) ? together : [];
}

/** Some are ready and wait for others: not for ever. */
export function isWaiting(members: readonly FetchingMember[]): boolean {
  const together = cohort(members);
  return together.some(({ ready }) => ready) && !together.every(({ ready }) => ready);
}
