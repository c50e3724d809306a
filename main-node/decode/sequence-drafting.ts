import type { DraftMaker } from '../drafting/choose-drafts.js';
import type { DraftToken } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { DraftBook, type FollowingDrafts } from './draft-book.js';
import type { DraftCostMeter } from './draft-costs.js';
import { onAbort } from '../../shared/base/runtime/living.js';

export interface DraftingOptions {
  /** Rows of a pass; 1: only the row of main's own token. */
  rows: number | 'auto';
  optimistic: boolean;
  promptTokens: number;
  /** The last position that the answer can run. No logits are wanted after the answer's last token. */
  lastPosition: number;
}

/** The result of a finished pass: its tokens, and the logits after each. */
interface VerifiedPass {
  position: number;
  tokenIds: readonly number[];
  logits: readonly Float32Array[];
  /** The makers of the drafts, in their order; left out: shadow. */
  makers?: readonly DraftMaker[];
}

/** Drafts that passes ran, and those of them that main sampled, too. */
export interface DraftCounts {
  proposed: number;
  accepted: number;
}

/** A pass that waits for its drafts. */
interface WaitingPass {
  position: number;
  wantedRows: number;
  /** Called when a draft has come that may end the wait. */
  onHeard: () => void;
  begunMs: number;
  /** Highest number of drafts that the pass could use so far. */
  mostUsable: number;
  /** The time when that number last rose, or when the wait began. */
  heardMs: number;
}

/**
 * The verified drafts of one sequence. Chooses the drafts that a pass runs after main's token, and remembers the logits for tokens that prove right.
 * Main samples every position from its own logits, so drafts decide how fast an answer is and nothing else.
 */
export class SequenceDrafting {
  /** Counts over the passes so far: rows that were drafts, and those of them that main sampled, too. */
  readonly counts: DraftCounts = { proposed: 0, accepted: 0 };
  /** The same by the makers of the drafts. */
  readonly countsByMaker = new Map<DraftMaker, DraftCounts>();
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
    /** Called where rows are 'auto'. */
    private readonly rowsThatPay: () => number,
    private readonly runtime: Pick<Runtime, 'nowMs' | 'after'>,
  ) {
    this.nextPosition = options.promptTokens;
  }

  get branch(): number {
    return this.book.branch;
  }

  /** Number of drafts for positions that main has not come to. */
  get rememberedCount(): number {
    return this.book.size;
  }

  arrive(draft: DraftToken): void {
    const isFirst = !this.book.has(draft.position);
    if (!this.book.arrive(draft, this.nextPosition)) return;
    if (isFirst) this.meter.shadowRan(draft.runUs);
    if (this.waiting === null) this.tryAnew();
    else this.hear(this.waiting);
  }

  /** The shadow does not follow the sequence any more: a pass need not wait for it. */
  shadowLost(): void {
    this.wake?.();
  }

  restart(position: number): void {
    this.book.restart(position);
  }

  /** Drops the logits of the last pass and the drafts, because neither can be relied upon any more. */
  forgetPass(): void {
    this.pass = null;
    this.forgetDrafts();
  }

  /** Drops the drafts: another shadow has begun the sequence. */
  forgetDrafts(): void {
    this.book.clear();
    this.heardOf();
  }

  /** Main has sampled `tokenId` at `position`. Returns the logits after it if the last pass has run this token; null: a new pass is needed. */
  settle(position: number, tokenId: number): Float32Array | null {
    this.nextPosition = position + 1;
    const { pass } = this;
    const row = position - (pass?.position ?? position);
    const logits = pass?.tokenIds[row] === tokenId ? pass.logits[row] : undefined;
    const verdict = this.book.settle(position, tokenId, logits !== undefined);
    if (verdict !== 'none') this.meter.drafted(verdict === 'right');
    if (logits !== undefined) {
      this.counts.accepted += 1;
      this.countsOf(pass, row).accepted += 1;
      return logits;
    }
    const wasRun = pass !== null && row < pass.tokenIds.length;
    if (wasRun && verdict !== 'wrong') this.book.provedWrong();
    this.pass = null;
    return null;
  }

  /** Number of rows that a pass at `position` should have. */
  rowsAt(position: number): number {
    const { rows, optimistic, lastPosition } = this.options;
    if (rows === 1 || (!optimistic && this.silentWaits >= MAX_SILENT_WAITS)) return 1;
    const wanted = rows === 'auto' ? this.rowsThatPay() : rows;
    return Math.max(1, Math.min(wanted, lastPosition - position + 1));
  }

  /** Waits until the drafts of a pass at `position` have come, or are not expected any more (draftWaitMs). */
  async wait(position: number, wantedRows: number, shadowFollows: () => boolean, signal: AbortSignal): Promise<void> {
    this.beginWait(position, wantedRows, () => this.wake?.());
    for (;;) {
      const limitMs = this.continueWait(shadowFollows());
      if (limitMs === null) return;
      if (signal.aborted) return this.endWait();
      await this.woken(limitMs, signal);
    }
  }

  /** A pass at `position` begins to wait. `onHeard` is called when a draft has come that may end the wait; the caller then calls continueWait again. */
  beginWait(position: number, wantedRows: number, onHeard: () => void): void {
    const mostUsable = this.following(position, wantedRows).tokenIds.length;
    const nowMs = this.runtime.nowMs();
    this.waiting = { position, wantedRows, onHeard, begunMs: nowMs, mostUsable, heardMs: nowMs };
  }

  /** Null: the wait is over, and the pass begins with the drafts that have come. Else the longest time in ms until this is to be called again. */
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
    for (let row = 1; row < pass.tokenIds.length; row++) this.countsOf(pass, row).proposed += 1;
  }

  private countsOf(pass: VerifiedPass | null, row: number): DraftCounts {
    const maker = pass?.makers?.[row - 1] ?? 'shadow';
    const counts = this.countsByMaker.get(maker) ?? { proposed: 0, accepted: 0 };
    this.countsByMaker.set(maker, counts);
    return counts;
  }

  /** A draft has come. It shows that shadow keeps up only if the waiting pass can use it. */
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

  /** A draft has come that no pass waited for. A shadow that came late to the sequence may keep up from now on, so passes wait again, but only once. */
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

/** Longest time that a pass waits for its drafts in total. */
export const DRAFT_WAIT_LIMIT_MS = 10_000;
/** Longest time that it waits for the next draft: in ms, and, if shadow is slow, in positions of shadow. */
export const DRAFT_SILENCE_LIMIT_MS = 500;
const DRAFT_SILENCE_POSITIONS = 4;
/** Interval after which a waiting pass checks again whether shadow still follows. */
export const DRAFT_RECHECK_MS = 250;
/** Number of waits in a row without a useful draft after which passes do not wait, and number of passes until one waits again. */
export const MAX_SILENT_WAITS = 2;
export const PASSES_UNTIL_RETRY = 32;

/** A pass that could begin, and the drafts that it might wait for. */
interface DraftWait {
  wantedRows: number;
  /** Rows of its own token and of the drafts that have come. */
  readyRows: number;
  /** Shadow has no more drafts for it. */
  complete: boolean;
  shadowFollows: boolean;
  /** Shadow's time for a position; 0: not known. */
  shadowTokenMs: number;
  waitedMs: number;
  /** Time since the last useful draft came, or since the wait began. */
  silentMs: number;
}

/** Null: the pass begins with the drafts that have come. Else the longest time until this is to be called again. */
export function draftWaitMs(wait: DraftWait): number | null {
  if (wait.readyRows >= wait.wantedRows || wait.complete || !wait.shadowFollows) return null;
  const silenceLimitMs = Math.max(DRAFT_SILENCE_LIMIT_MS, DRAFT_SILENCE_POSITIONS * wait.shadowTokenMs);
  const leftMs = Math.min(DRAFT_WAIT_LIMIT_MS - wait.waitedMs, silenceLimitMs - wait.silentMs);
  return leftMs > 0 ? Math.min(leftMs, DRAFT_RECHECK_MS) : null;
}
