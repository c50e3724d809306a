import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PaceRuntime } from './exact-timer.js';

/** Operations that wait for the processor of one device. Callers ask for one at a time for each pass and slot. */
const MOST_WAITING = 65_536;

/**
 * The processor of a paced device: one operation after the other, in the order asked for. An operation begins when it was asked for or when
 * the one before it has ended, in the profiled device's time: a late wake-up here does not add up.
 */
export class PacedProcessor {
  private freeAtMs = -Infinity;
  private last: Promise<void> = Promise.resolve();
  private waiting = 0;

  constructor(private readonly runtime: PaceRuntime) {}

  /** One operation that takes that long. It ends when its work is done if that is later. */
  operate<Result>(takenMs: number, work: () => Promise<Result>): Promise<Result> {
    return this.occupy(async (startMs) => {
      const endMs = startMs + takenMs;
      return { result: await this.runtime.outside(work, endMs), endMs };
    });
  }

  /** An operation that finds out how long it takes: `work` resolves when it ends, with the time at which it was to end. */
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
