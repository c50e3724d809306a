/** How long a pass waits for its drafts, all in all. */
export const DRAFT_WAIT_LIMIT_MS = 10_000;
/** How long it waits for the next of them, and, where shadow is slow, in positions of shadow. */
export const DRAFT_SILENCE_LIMIT_MS = 500;
export const DRAFT_SILENCE_POSITIONS = 4;
/** Whether shadow still follows is asked anew after so long. */
export const DRAFT_RECHECK_MS = 250;
/** After so many waits in a row without a draft of use, none is waited for in as many passes as the second number says. */
export const MAX_SILENT_WAITS = 2;
export const PASSES_UNTIL_RETRY = 32;

/** A pass that could begin, and the drafts that it might wait for. */
export interface DraftWait {
  wantedRows: number;
  /** Its own token and the drafts that are there. */
  readyRows: number;
  /** Shadow has no more drafts for it. */
  complete: boolean;
  shadowFollows: boolean;
  /** What shadow takes for a position; 0: not known. */
  shadowTokenMs: number;
  waitedMs: number;
  /** Since the last draft of use came, or since the wait began. */
  silentMs: number;
}

/** Null: begin with what is there. Else the longest time until this is to be asked again. */
export function draftWaitMs(wait: DraftWait): number | null {
  if (wait.readyRows >= wait.wantedRows || wait.complete || !wait.shadowFollows) return null;
  const silenceLimitMs = Math.max(DRAFT_SILENCE_LIMIT_MS, DRAFT_SILENCE_POSITIONS * wait.shadowTokenMs);
  const leftMs = Math.min(DRAFT_WAIT_LIMIT_MS - wait.waitedMs, silenceLimitMs - wait.silentMs);
  return leftMs > 0 ? Math.min(leftMs, DRAFT_RECHECK_MS) : null;
}
