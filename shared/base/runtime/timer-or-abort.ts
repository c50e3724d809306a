import { onAbort } from './living.js';
import type { Timer } from './runtime.js';

/** Resolves when the timer that `start` sets has fired, or at once when the signal aborts. Afterwards neither the timer nor the listener is left. */
export async function timerOrAbort(
  start: (done: () => void) => Pick<Timer, 'cancel'>,
  signal?: AbortSignal,
): Promise<void> {
  if (signal?.aborted === true) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      timer.cancel();
      leave();
      resolve();
    };
    const timer = start(done);
    const leave = onAbort(signal, done);
  });
}
