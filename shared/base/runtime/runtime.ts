/** Something that is to happen later. */
export interface Timer {
  /** It does not happen any more. Idempotent; does nothing once it has happened. */
  cancel(): void;
  /** The process may end before it happens. */
  unref(): void;
}

/**
 * Everything that a daemon takes from outside its own code: time, later turns, chance, and work that ends at a time of its own. Daemons have
 * no other source of these, so that one process can run a whole cluster on a virtual clock, and one seed gives one history.
 */
export interface Runtime {
  /** Milliseconds of a clock that never goes back. Its zero means nothing. */
  nowMs(): number;
  /** When the event happened that is being handled now. Earlier than nowMs() only where emulated hardware ended an operation (outside). */
  eventMs(): number;
  /** Milliseconds since 1970. May jump either way. */
  wallMs(): number;
  /** Calls `run` once, after `delayMs`. */
  after(delayMs: number, run: () => void): Timer;
  /** Calls `run` after each `intervalMs`. */
  every(intervalMs: number, run: () => void): Timer;
  /** Calls `run` in a later turn of the event loop, when what has arrived by now has been handled. */
  nextTurn(run: () => void): Timer;
  /** Resolves after `delayMs`, or at once when the signal aborts. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /** A whole number from 0 to `limit` - 1; `limit` is at most 2^48. */
  randomInt(limit: number): number;
  /** Memory of the process, as the system counts it. */
  memoryBytes(): number;
  /** Memory of the host that a process could take now without pushing others out. */
  freeHostMemoryBytes(): number;
  /** A name that nobody else has. */
  randomId(): string;
  /**
   * Waits for work that is done outside the event loop: native calls, files, other threads. With `dueMs` (of nowMs()) it does not end before
   * that time, and that time is when it ended (eventMs). On a virtual clock the time stands still until the work is done, and works end in
   * a fixed order, whichever thread is faster.
   */
  outside<Result>(work: () => Promise<Result>, dueMs?: number): Promise<Result>;
}

/** A uniform number from 0 to 1, without 1. */
export function randomFraction(runtime: Pick<Runtime, 'randomInt'>): number {
  return runtime.randomInt(FRACTION_STEPS) / FRACTION_STEPS;
}

const FRACTION_STEPS = 2 ** 48;
