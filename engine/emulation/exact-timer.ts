import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** What timers and works of a paced device need. */
export type PaceRuntime = Pick<Runtime, 'eventMs' | 'after' | 'outside'>;

/** Timers are that much too coarse on a real clock: the rest is waited for as the end of outside work, which is exact. */
const COARSE_MS = 4;

/** Something that is to happen at an exact time. */
export interface ExactTimer {
  /** It does not happen any more. Idempotent; does nothing once it has happened. */
  cancel(): void;
}

/**
 * Calls `run` at that time, or when `work` has settled if that is later, and never sooner than in a later turn. `work`: real work whose
 * outcome is not to be seen before that time; null: there is none.
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
