import type { ExpertSlots } from '../../native/index.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';

/** A worker counts as idle this long after its last work: longer than main's part of a layer, shorter than a pause between two answers. */
export const IDLE_MS = 100;

/** Access to the other components of the worker. */
export interface RecoderParts {
  slots: Pick<ExpertSlots, 'pack' | 'cancelPack'>;
  /** True if the expert in the slot stays in the cache and nobody uses it. */
  isCached: (slot: number) => boolean;
  /** True if nothing loads, runs or is expected. */
  isIdle: () => boolean;
  runtime: Pick<Runtime, 'after' | 'nowMs'>;
  log: Logger;
}

/**
 * Recodes the cached BF16 experts to fixed4, one after the other, while the worker is idle. A recoded expert is read in fewer bytes when it
 * executes. New work cancels the recoding at once. Answers do not need it and do not change because of it.
 */
export class ExpertRecoder {
  /** Slots whose expert may still be recoded. */
  private readonly open = new Set<number>();
  private readonly recodedSlots = new Set<number>();
  private timer: Timer | null = null;
  private workedMs = -Infinity;
  /** Counts the calls of `worked`. */
  private works = 0;
  private recoding: Promise<void> | null = null;
  private closed = false;

  constructor(private readonly parts: RecoderParts) {}

  /** Number of experts that are stored as fixed4. */
  get recoded(): number {
    return this.recodedSlots.size;
  }

  /** The slot's expert is gone. */
  emptied(slot: number): void {
    this.open.delete(slot);
    this.recodedSlots.delete(slot);
  }

  /** The slot now has a BF16 expert. */
  loaded(slot: number): void {
    this.emptied(slot);
    this.open.add(slot);
  }

  /** New work has come for the worker. */
  worked(): void {
    this.workedMs = this.parts.runtime.nowMs();
    this.works += 1;
    if (this.recoding !== null) this.parts.slots.cancelPack();
    this.arm();
  }

  /** After this resolves, no recoding runs. Idempotent. */
  async close(): Promise<void> {
    this.closed = true;
    this.timer?.cancel();
    if (this.recoding !== null) this.parts.slots.cancelPack();
    await this.recoding;
  }

  /** One timer serves any amount of work: when it fires, it waits again if work came meanwhile. */
  private arm(delayMs = IDLE_MS): void {
    if (this.timer !== null || this.recoding !== null || this.open.size === 0 || this.closed) return;
    this.timer = this.parts.runtime.after(delayMs, () => {
      this.timer = null;
      const restMs = this.workedMs + IDLE_MS - this.parts.runtime.nowMs();
      if (restMs > 0) this.arm(restMs);
      else if (this.parts.isIdle()) this.begin();
      // Otherwise work is under way; its end is reported as work, which starts a new timer.
    });
    this.timer.unref();
  }

  private begin(): void {
    this.recoding = this.recodeAll()
      .catch((thrown: unknown) => {
        this.parts.log.warn('recoding experts has ended early', { error: toOdmoeError(thrown) });
        this.open.clear();
      })
      .finally(() => {
        this.recoding = null;
        this.arm();
      });
  }

  /** Runs until work comes. An expert that fixed4 cannot represent stays as it is. */
  private async recodeAll(): Promise<void> {
    const { works } = this;
    for (const slot of this.open) {
      if (!this.parts.isCached(slot)) {
        this.open.delete(slot);
        continue;
      }
      const outcome = await this.parts.slots.pack(slot);
      // If work came, another expert may be in the slot now. If that expert was recoded nevertheless, a later call finds this out.
      if (outcome === 'givenUp' || this.works !== works || this.closed) return;
      this.open.delete(slot);
      if (outcome === 'packed') this.recodedSlots.add(slot);
    }
  }
}
