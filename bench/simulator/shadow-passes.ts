/** What shadow knows of main's passes: where the current one began, how many positions it has, how many the next should have. */
export interface KnownPass {
  position: number;
  /** 0: main waits for drafts before it begins. */
  rows: number;
  nextRows: number;
}

/** First position of the pass that a position belongs to; one that main has passed stands for itself. */
export function passOf(position: number, known: KnownPass): number {
  if (position < known.position) return position;
  const rows = known.rows === 0 ? known.nextRows : known.rows;
  return position < known.position + rows ? known.position : known.position + rows;
}

/**
 * The last position that shadow may run on its own guess: without optimistic departure of the pass that main has announced, with it
 * of the next one too.
 */
export function lastDraftPosition(known: KnownPass, optimistic: boolean): number {
  const rows = known.rows === 0 ? known.nextRows : known.rows;
  const end = known.position + rows;
  return (optimistic ? end + known.nextRows : end) - 1;
}
