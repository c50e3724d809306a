import type { DraftToken } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { DraftBook, type FollowingDrafts } from './draft-book.js';
import type { DraftCostMeter } from './draft-costs.js';
import { onAbort } from '../../shared/base/runtime/living.js';

export interface DraftingOptions {
  /** 1: main's own token only. */
  rows: number | 'auto';
  optimistic: boolean;
  promptTokens: number;
  /** The last that the answer can run: of its last token nothing is wanted but the token. */
  lastPosition: number;
}

/** What a finished pass leaves: its tokens, and the logits after each. */
interface VerifiedPass {
  position: number;
  tokenIds: readonly number[];
  logits: readonly Float32Array[];
}

/** A pass that waits for its drafts. */
interface WaitingPass {
  position: number;
  wantedRows: number;
  /** A draft has come that may end the wait. */
  onHeard: () => void;
  begunMs: number;
  /** Most drafts that it could use so far. */
  mostUsable: number;
  /** When these became more, or the wait began. */
  heardMs: number;
}

/**
 * Verified drafts of one sequence: which drafts a pass runs behind main's token, and which logits it has kept for tokens that prove
 * right. main samples every position from its own logits, so drafts decide how fast an answer is and nothing else.
 */
export class SequenceDrafting {
  /** Of the passes so far: rows that were drafts, and those of them that main sampled, too. */
  readonly counts = { proposed: 0, accepted: 0 };
  private readonly book = new DraftBook();
  private pass: VerifiedPass | null = null;
  private nextPosition: number;
  private waiting: WaitingPass | null = null;
  private silentWaits = 0;
  private triedAnew = false;
  private passesUnwaited = 0;
  private wake: (() => void) | null = null;

  constructor(
    private readonly options: DraftingOptions,
    private readonly meter: DraftCostMeter,
    /** Asked where rows are 'auto'. */
    private readonly rowsThatPay: () => number,
    private readonly runtime: Pick<Runtime, 'nowMs' | 'after'>,
  ) {
    this.nextPosition = options.promptTokens;
  }

  get branch(): number {
    return this.book.branch;
  }

  /** Drafts of positions that main has not come to. */
  get keptCount(): number {
    return this.book.size;
  }

  arrive(draft: DraftToken): void {
    const isFirst = !this.book.has(draft.position);
    if (!this.book.arrive(draft, this.nextPosition)) return;
    if (isFirst) this.meter.shadowRan(draft.runUs);
    if (this.waiting === null) this.tryAnew();
    else this.hear(this.waiting);
  }

  /** The shadow that followed the sequence does so no longer: a pass need not wait for it. */
  shadowLost(): void {
    this.wake?.();
  }

  restart(position: number): void {
    this.book.restart(position);
  }

  /** Neither the logits that the last pass has left nor the drafts are to be relied upon. */
  forgetPass(): void {
    this.pass = null;
    this.forgetDrafts();
  }

  /** Another shadow has begun the sequence. */
  forgetDrafts(): void {
    this.book.clear();
    this.heardOf();
  }

  /** main has sampled `tokenId` at `position`. Returns the logits after it where the last pass has run just that; null: a pass is due. */
  settle(position: number, tokenId: number): Float32Array | null {
    this.nextPosition = position + 1;
    const verdict = this.book.settle(position, tokenId);
    if (verdict !== 'none') this.meter.drafted(verdict === 'right');
    const { pass } = this;
    const row = position - (pass?.position ?? position);
    const logits = pass?.tokenIds[row] === tokenId ? pass.logits[row] : undefined;
    if (logits !== undefined) {
      this.counts.accepted += 1;
      return logits;
    }
    const wasRun = pass !== null && row < pass.tokenIds.length;
    if (wasRun && verdict !== 'wrong') this.book.provedWrong();
    this.pass = null;
    return null;
  }

  /** Rows that a pass at `position` should have. */
  rowsAt(position: number): number {
    const { rows, optimistic, lastPosition } = this.options;
    if (rows === 1 || (!optimistic && this.silentWaits >= MAX_SILENT_WAITS)) return 1;
    const wanted = rows === 'auto' ? this.rowsThatPay() : rows;
    return Math.max(1, Math.min(wanted, lastPosition - position + 1));
  }

  /** Waits until the drafts of a pass at `position` are there, or are not to be expected (draftWaitMs). */
  async wait(position: number, wantedRows: number, shadowFollows: () => boolean, signal: AbortSignal): Promise<void> {
    this.beginWait(position, wantedRows, () => this.wake?.());
    for (;;) {
      const limitMs = this.continueWait(shadowFollows());
      if (limitMs === null) return;
      if (signal.aborted) return this.endWait();
      await this.woken(limitMs, signal);
    }
  }

  /** A pass at `position` begins to wait; `onHeard`: ask continueWait again, a draft has come that may end the wait. */
  beginWait(position: number, wantedRows: number, onHeard: () => void): void {
    const mostUsable = this.following(position, wantedRows).tokenIds.length;
    const nowMs = this.runtime.nowMs();
    this.waiting = { position, wantedRows, onHeard, begunMs: nowMs, mostUsable, heardMs: nowMs };
  }

  /** Null: the wait is over, the pass begins with what is there. Else the longest time in ms until this is to be asked again. */
  continueWait(shadowFollows: boolean): number | null {
    const { waiting } = this;
    if (waiting === null) return null;
    const { tokenIds, complete } = this.following(waiting.position, waiting.wantedRows);
    const nowMs = this.runtime.nowMs();
    const limitMs = draftWaitMs({
      wantedRows: waiting.wantedRows,
      readyRows: tokenIds.length + 1,
      complete,
      shadowFollows,
      shadowTokenMs: this.meter.shadowTokenMs,
      waitedMs: nowMs - waiting.begunMs,
      silentMs: nowMs - waiting.heardMs,
    });
    if (limitMs === null) this.endWait();
    return limitMs;
  }

  private endWait(): void {
    const { waiting } = this;
    this.waiting = null;
    if (waiting === null) return;
    if (this.following(waiting.position, waiting.wantedRows).tokenIds.length > 0) this.heardOf();
    else this.silentWaits += 1;
  }

  /** Drafts for a pass at `position`, of at most `rows` rows with its own token. */
  following(position: number, rows: number): FollowingDrafts {
    return this.book.following(position, rows - 1);
  }

  passed(pass: VerifiedPass): void {
    this.pass = pass;
    if (this.silentWaits >= MAX_SILENT_WAITS && ++this.passesUnwaited >= PASSES_UNTIL_RETRY) {
      this.passesUnwaited = 0;
      this.silentWaits = MAX_SILENT_WAITS - 1;
    }
    this.counts.proposed += pass.tokenIds.length - 1;
  }

  /** Only a draft that the waiting pass can use is a sign of a shadow that keeps up. */
  private hear(waiting: WaitingPass): void {
    const { tokenIds, complete } = this.following(waiting.position, waiting.wantedRows);
    if (tokenIds.length > waiting.mostUsable) {
      waiting.mostUsable = tokenIds.length;
      waiting.heardMs = this.runtime.nowMs();
      waiting.onHeard();
    } else if (complete) waiting.onHeard();
  }

  private heardOf(): void {
    this.silentWaits = 0;
    this.triedAnew = false;
  }

  /** A draft that no pass has waited for: a shadow that came late to the sequence may keep up from now on. Believed once. */
  private tryAnew(): void {
    if (this.silentWaits < MAX_SILENT_WAITS || this.triedAnew) return;
    this.triedAnew = true;
    this.silentWaits = MAX_SILENT_WAITS - 1;
  }

  /** Resolves when a draft comes that can be used, when shadow is lost, after limitMs, or on abort. */
  private async woken(limitMs: number, signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        timer.cancel();
        leave();
        this.wake = null;
        resolve();
      };
      const timer = this.runtime.after(limitMs, done);
      const leave = onAbort(signal, done);
      this.wake = done;
      if (signal.aborted) done();
    });
  }
}

/** How long a pass waits for its drafts, all in all. */
export const DRAFT_WAIT_LIMIT_MS = 10_000;
/** How long it waits for the next of them, and, where shadow is slow, in positions of shadow. */
export const DRAFT_SILENCE_LIMIT_MS = 500;
const DRAFT_SILENCE_POSITIONS = 4;
/** Whether shadow still follows is asked anew after so long. */
export const DRAFT_RECHECK_MS = 250;
/** After so many waits in a row without a draft of use, none is waited for in as many passes as the second number says. */
export const MAX_SILENT_WAITS = 2;
export const PASSES_UNTIL_RETRY = 32;

/** A pass that could begin, and the drafts that it might wait for. */
interface DraftWait {
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
