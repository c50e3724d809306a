import { EventQueue } from './event-queue.js';

/** The time of a simulation: it stands still while something happens and leaps to what happens next. */
export class VirtualClock {
  readonly #events = new EventQueue();
  #nowMs = 0;
  #stopped = false;
  #handled = 0;

  get nowMs(): number {
    return this.#nowMs;
  }

  /** Events that have happened. */
  get handled(): number {
    return this.#handled;
  }

  /** At that time; now, behind what is due now already, where it has passed. */
  at(atMs: number, happen: () => void): void {
    this.#events.add(Math.max(atMs, this.#nowMs), happen);
  }

  after(delayMs: number, happen: () => void): void {
    this.at(this.#nowMs + delayMs, happen);
  }

  /** Until nothing is left to happen, or `stop`. */
  run(): void {
    this.#stopped = false;
    while (!this.#stopped) {
      const next = this.#events.take();
      if (next === null) return;
      this.#nowMs = next.atMs;
      this.#handled += 1;
      next.happen();
    }
  }

  stop(): void {
    this.#stopped = true;
  }
}
