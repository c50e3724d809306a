import type { ExpertSlots } from '../../native/index.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';

/** So long after its last work a worker counts as idle: longer than main's part of a layer, shorter than a pause between two answers. */
export const IDLE_MS = 100;

/** What the rest of the worker knows. */
export interface RecoderParts {
  slots: Pick<ExpertSlots, 'pack' | 'cancelPack'>;
  /** Whether the expert in the slot is one that stays, and nobody uses it. */
  isKept: (slot: number) => boolean;
  /** Nothing loads, runs or is expected. */
  isIdle: () => boolean;
  runtime: Pick<Runtime, 'after' | 'nowMs'>;
  log: Logger;
}

/**
 * Packs the BF16 experts that a worker keeps into fixed4 while it has nothing to do, one after the other, so that executing them reads fewer
 * bytes. Work that comes has it given up at once. Nothing here is needed for an answer, and none changes by it.
 */
export class ExpertRecoder {
  /** Slots with an expert that might be packed. */
  private readonly open = new Set<number>();
  private readonly packedSlots = new Set<number>();
  private timer: Timer | null = null;
  private workedMs = -Infinity;
  /** Times that there was something to do. */
  private works = 0;
  private packing: Promise<void> | null = null;
  private closed = false;

  constructor(private readonly parts: RecoderParts) {}

  /** Experts that are held as fixed4. */
  get packed(): number {
    return this.packedSlots.size;
  }

  /** What was in the slot is gone. */
  emptied(slot: number): void {
    this.open.delete(slot);
    this.packedSlots.delete(slot);
  }

  /** A BF16 expert is in the slot from now on. */
  loaded(slot: number): void {
    this.emptied(slot);
    this.open.add(slot);
  }

  /** The worker has something to do. */
  worked(): void {
    this.workedMs = this.parts.runtime.nowMs();
    this.works += 1;
    if (this.packing !== null) this.parts.slots.cancelPack();
    this.arm();
  }

  /** Nothing is packed any more once it resolves. Idempotent. */
  async close(): Promise<void> {
    this.closed = true;
    this.timer?.cancel();
    if (this.packing !== null) this.parts.slots.cancelPack();
    await this.packing;
  }

  /** One timer, however much work comes: it looks again where there was some meanwhile. */
  private arm(delayMs = IDLE_MS): void {
    if (this.timer !== null || this.packing !== null || this.open.size === 0 || this.closed) return;
    this.timer = this.parts.runtime.after(delayMs, () => {
      this.timer = null;
      const restMs = this.workedMs + IDLE_MS - this.parts.runtime.nowMs();
      if (restMs > 0) this.arm(restMs);
      else if (this.parts.isIdle()) this.begin();
      // Else what is under way ends, which is work.
    });
    this.timer.unref();
  }

  private begin(): void {
    this.packing = this.packAll()
      .catch((thrown: unknown) => {
        this.parts.log.warn('packing experts has ended early', { error: toOdmoeError(thrown) });
        this.open.clear();
      })
      .finally(() => {
        this.packing = null;
        this.arm();
      });
  }

  /** Until work comes. An expert that fixed4 cannot hold stays as it is. */
  private async packAll(): Promise<void> {
    const { works } = this;
    for (const slot of this.open) {
      if (!this.parts.isKept(slot)) {
        this.open.delete(slot);
        continue;
      }
      const outcome = await this.parts.slots.pack(slot);
      // Where there was work, another expert may be in the slot by now. One that was packed nevertheless is found to be so later.
      if (outcome === 'givenUp' || this.works !== works || this.closed) return;
      this.open.delete(slot);
      if (outcome === 'packed') this.packedSlots.add(slot);
    }
  }
}
