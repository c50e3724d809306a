export type Spread = 'group' | 'all';

/**
 * Workers that an expert may go to. With drafts all, whatever is set: a pass of several rows activates more experts of a layer than its
 * group has workers, and loading one after the other would cost more than drafts bring.
 */
export function spreadForDrafts(rows: number | 'auto', spread: Spread): Spread {
  return rows === 1 ? spread : 'all';
}
