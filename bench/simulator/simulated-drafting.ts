import type { DraftCostMeter } from '../../main-node/decode/draft-costs.js';
import { MAX_SILENT_WAITS, PASSES_UNTIL_RETRY, draftWaitMs } from '../../main-node/decode/draft-wait.js';
import { SequenceDrafting, type DraftingOptions } from '../../main-node/decode/sequence-drafting.js';
import type { DraftToken } from '../../shared/rpc/messages.js';
import type { VirtualClock } from './virtual-clock.js';

interface DraftWaiting {
  position: number;
  rows: number;
  begunMs: number;
  /** Most drafts that the pass could use so far, and when these became more. */
  mostUsable: number;
  heardMs: number;
  begin: () => void;
}

/** The daemon's drafting of one sequence, but that it waits on the virtual clock: by draftWaitMs, and so for a bounded time. */
export class SimulatedDrafting extends SequenceDrafting {
  #waiting: DraftWaiting | null = null;
  #nextPosition: number;
  #silentWaits = 0;
  #triedAnew = false;
  #passesUnwaited = 0;

  constructor(
    private readonly draftingOptions: DraftingOptions,
    private readonly costs: DraftCostMeter,
    rowsThatPay: () => number,
    private readonly clock: VirtualClock,
  ) {
    super(draftingOptions, costs, rowsThatPay, () => clock.nowMs);
    this.#nextPosition = draftingOptions.promptTokens;
  }

  override arrive(draft: DraftToken): void {
    super.arrive(draft);
    if (draft.branch !== this.branch || draft.position < this.#nextPosition) return;
    if (this.#waiting !== null) return this.#goOn();
    if (this.#silentWaits < MAX_SILENT_WAITS || this.#triedAnew) return;
    this.#triedAnew = true;
    this.#silentWaits = MAX_SILENT_WAITS - 1;
  }

  override settle(position: number, tokenId: number): Float32Array | null {
    this.#nextPosition = position + 1;
    return super.settle(position, tokenId);
  }

  override rowsAt(position: number): number {
    if (!this.draftingOptions.optimistic && this.#silentWaits >= MAX_SILENT_WAITS) return 1;
    return super.rowsAt(position);
  }

  override passed(pass: Parameters<SequenceDrafting['passed']>[0]): void {
    super.passed(pass);
    if (this.#silentWaits >= MAX_SILENT_WAITS && ++this.#passesUnwaited >= PASSES_UNTIL_RETRY) {
      this.#passesUnwaited = 0;
      this.#silentWaits = MAX_SILENT_WAITS - 1;
    }
  }

  /** `begin`: the drafts of a pass at `position` are there, or are not to be expected. */
  waitThen(position: number, rows: number, begin: () => void): void {
    const { nowMs } = this.clock;
    const mostUsable = this.following(position, rows).tokenIds.length;
    this.#waiting = { position, rows, begunMs: nowMs, mostUsable, heardMs: nowMs, begin };
    this.#goOn();
  }

  #goOn(): void {
    const waiting = this.#waiting;
    if (waiting === null) return;
    const { nowMs } = this.clock;
    const { tokenIds, complete } = this.following(waiting.position, waiting.rows);
    if (tokenIds.length > waiting.mostUsable) {
      waiting.mostUsable = tokenIds.length;
      waiting.heardMs = nowMs;
    }
    const limitMs = draftWaitMs({
      ...{ wantedRows: waiting.rows, readyRows: tokenIds.length + 1, complete, shadowFollows: true },
      shadowTokenMs: this.costs.shadowTokenMs,
      ...{ waitedMs: nowMs - waiting.begunMs, silentMs: nowMs - waiting.heardMs },
    });
    if (limitMs !== null) {
      this.clock.after(limitMs, () => {
        if (this.#waiting === waiting) this.#goOn();
      });
      return;
    }
    this.#waiting = null;
    if (tokenIds.length > 0) {
      this.#silentWaits = 0;
      this.#triedAnew = false;
    } else {
      this.#silentWaits += 1;
    }
    waiting.begin();
  }
}
