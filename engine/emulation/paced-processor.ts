import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PaceRuntime } from './exact-timer.js';

/** Most operations that wait for the processor of one device. Each pass and each slot has at most one. */
const MOST_WAITING = 65_536;

/**
 * The processor of a paced device: one operation after the other, in the order of the requests. An operation begins, in the profiled device's
 * time, at its request or at the end of the one before it: so late wake-ups of this process do not add up.
 */
export class PacedProcessor {
  private freeAtMs = -Infinity;
  private last: Promise<void> = Promise.resolve();
  private waiting = 0;

  constructor(private readonly runtime: PaceRuntime) {}

  /** Runs one operation of this length. It ends later if its work is done later. */
  operate<Result>(takenMs: number, work: () => Promise<Result>): Promise<Result> {
    return this.occupy(async (startMs) => {
      const endMs = startMs + takenMs;
      return { result: await this.runtime.outside(work, endMs), endMs };
    });
  }

  /** Runs an operation that finds its length during the work: `work` resolves when it ends, with its planned end time. */
  async occupy<Result>(work: (startMs: number) => Promise<{ result: Result; endMs: number }>): Promise<Result> {
    if (this.waiting >= MOST_WAITING) {
      throw new OdmoeError('QUEUE_FULL', `${MOST_WAITING} operations wait for the emulated device; await some first`);
    }
    const askedMs = this.runtime.eventMs();
    const before = this.last;
    let leave = (): void => undefined;
    this.last = new Promise((resolve) => {
      leave = resolve;
    });
    this.waiting += 1;
    try {
      await before;
      const startMs = Math.max(askedMs, this.freeAtMs);
      this.freeAtMs = startMs;
      const { result, endMs } = await work(startMs);
      this.freeAtMs = Math.max(endMs, this.runtime.eventMs());
      return result;
    } catch (thrown) {
      this.freeAtMs = Math.max(this.freeAtMs, this.runtime.eventMs());
      throw thrown;
    } finally {
      this.waiting -= 1;
      leave();
    }
  }
}
