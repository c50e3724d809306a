/**
 * Which rows the next pass of the shadow holds, of which sequences: a pure decision. An iteration of one row runs ahead of main, or beside
 * it, and main waits for what it foretells: it is *urgent*. Pieces of a prefill, and positions that main has passed and that are caught
 * up with at once, are *bulk*: many rows, which nobody waits for as they run.
 *
 * All urgent rows go into one pass. Bulk goes with them only where the pass before had to leave it out. So an iteration waits for no
 * more rows of bulk than a pass has: those of the pass that runs as its token comes, or those of its own pass, never both.
 */

/** What a sequence could run now. */
export interface WantedRows {
  kind: 'prefill' | 'iterate';
  /** At least 1. */
  rows: number;
}

export interface PassPlan {
  /** Rows for each sequence; 0: it waits for a later pass. */
  rows: number[];
  /** There was bulk, and none of it is in the pass. */
  leavesBulkOut: boolean;
}

/** Of the rows of a pass this share is bulk's where it was left out before, however many iterations there are. */
const BULK_SHARE = 1 / 8;

/** `wanted`: of the sequences that can run, in the order of their turns. `bulkWasLeftOut`: by the pass before. */
export function planPass(wanted: readonly WantedRows[], maxRows: number, bulkWasLeftOut: boolean): PassPlan {
  const isUrgent = ({ kind, rows }: WantedRows): boolean => kind === 'iterate' && rows === 1;
  const hasBulk = !wanted.every(isUrgent);
  const urgentLimit = hasBulk && bulkWasLeftOut ? maxRows - Math.ceil(maxRows * BULK_SHARE) : maxRows;
  let left = urgentLimit;
  const rows = wanted.map((want): number => {
    if (!isUrgent(want) || left === 0) return 0;
    left -= 1;
    return 1;
  });
  const hasUrgent = left < urgentLimit;
  if (hasBulk && hasUrgent && !bulkWasLeftOut) return { rows, leavesBulkOut: true };
  left += maxRows - urgentLimit;
  wanted.forEach((want, index) => {
    if (isUrgent(want)) return;
    const granted = Math.min(left, want.rows);
    rows[index] = granted;
    left -= granted;
  });
  return { rows, leavesBulkOut: false };
}
