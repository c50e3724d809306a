/** Something that is to happen later. */
export interface Timer {
  /** Cancels the timer. Idempotent; does nothing once the timer has fired. */
  cancel(): void;
  /** The process may end before the timer fires. */
  unref(): void;
}

/**
 * Everything that a daemon takes from outside its own code: time, later turns, random numbers, and work that ends at a set time. Daemons have no
 * other source of these, so one process can run a whole cluster on a virtual clock, and one seed gives one history.
 */
export interface Runtime {
  /** Milliseconds of a clock that never goes back. Its zero is arbitrary. */
  nowMs(): number;
  /** The time of the event that is being handled now. It is earlier than nowMs() only if emulated hardware ended an operation (outside). */
  eventMs(): number;
  /** Milliseconds since 1970. May jump forward or back. */
  wallMs(): number;
  /** Calls `run` once, after `delayMs`. */
  after(delayMs: number, run: () => void): Timer;
  /** Calls `run` after each `intervalMs`. */
  every(intervalMs: number, run: () => void): Timer;
  /** Calls `run` in a later turn of the event loop, after everything that has arrived by now has been handled. */
  nextTurn(run: () => void): Timer;
  /** Resolves after `delayMs`, or at once when the signal aborts. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /** A whole number from 0 to `limit` - 1; `limit` is at most 2^48. */
  randomInt(limit: number): number;
  /** Memory of the process, as the system counts it. */
  memoryBytes(): number;
  /** Memory of the host that a process could take now without pushing other processes out. */
  freeHostMemoryBytes(): number;
  /** Milliseconds since the system of the host was started. */
  hostUptimeMs(): number;
  /** Name of this start of the system of the host. Another start has another one. */
  hostBootId(): string;
  /** A unique name. */
  randomId(): string;
  /**
   * Waits for work outside the event loop: native calls, files, other threads. With `dueMs` (on the clock of nowMs()) it does not end before
   * that time, and eventMs() is then `dueMs`. On a virtual clock the time stands still until the work is done, and works end in a fixed order,
   * whichever thread is faster.
   */
  outside<Result>(work: () => Promise<Result>, dueMs?: number): Promise<Result>;
}

/** A uniform random number in [0, 1). */
export function randomFraction(runtime: Pick<Runtime, 'randomInt'>): number {
  return runtime.randomInt(FRACTION_STEPS) / FRACTION_STEPS;
}

const FRACTION_STEPS = 2 ** 48;
