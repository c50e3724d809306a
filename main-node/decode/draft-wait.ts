/** How long a pass waits for its drafts, all in all. */
export const DRAFT_WAIT_LIMIT_MS = 2000;
/** How long it waits for the next of them. */
export const DRAFT_SILENCE_LIMIT_MS = 500;
/** After so many waits in a row without a single draft none is waited for, until shadow drafts again. */
export const MAX_SILENT_WAITS = 2;

/** A pass that could begin, and the drafts that it might wait for. */
export interface DraftWait {
  wantedRows: number;
  /** Its own token and the drafts that are there. */
  readyRows: number;
  /** Shadow has no more drafts for it. */
  complete: boolean;
  shadowFollows: boolean;
  waitedMs: number;
  /** Since the last draft came, or since the wait began. */
  silentMs: number;
}

/** Null: begin with what is there. Else the longest time until this is to be asked again. */
export function draftWaitMs(wait: DraftWait): number | null {
  if (wait.readyRows >= wait.wantedRows || wait.complete || !wait.shadowFollows) return null;
  const leftMs = Math.min(DRAFT_WAIT_LIMIT_MS - wait.waitedMs, DRAFT_SILENCE_LIMIT_MS - wait.silentMs);
  return leftMs > 0 ? leftMs : null;
}
