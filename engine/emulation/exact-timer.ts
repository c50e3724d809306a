import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** The parts of the runtime that a paced device needs for timers and work. */
export type PaceRuntime = Pick<Runtime, 'eventMs' | 'after' | 'outside'>;

/**
 * A timer on a real clock can be late by this much. So the timer is set earlier, and the rest of the time is waited as outside work, which
 * ends exactly.
 */
const COARSE_MS = 4;

/** A timer that fires at an exact time. */
export interface ExactTimer {
  /** Cancels the timer. Idempotent; does nothing after it has fired. */
  cancel(): void;
}

/**
 * Calls `run` at that time, or when `work` has settled if that is later, and always in a later turn. `work`: real work whose outcome must not
 * be visible before that time; null: none.
 */
export function atExactly(
  runtime: PaceRuntime,
  dueMs: number,
  work: Promise<unknown> | null,
  run: () => void,
): ExactTimer {
  let cancelled = false;
  const settled = async (): Promise<void> => {
    if (work !== null) await Promise.allSettled([work]);
  };
  const finish = (): void => {
    void runtime.outside(settled, dueMs).then(() => {
      if (!cancelled) run();
    });
  };
  const remainingMs = dueMs - runtime.eventMs();
  if (!(remainingMs > 2 * COARSE_MS)) {
    finish();
    return {
      cancel: () => {
        cancelled = true;
      },
    };
  }
  const timer = runtime.after(remainingMs - COARSE_MS, finish);
  return {
    cancel: () => {
      cancelled = true;
      timer.cancel();
    },
  };
}
