import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 10;
/** Time limit of a wait in a test. It is long, because other tests and a compiler may run at the same time. */
export const WAIT_LIMIT_MS = 60_000;

/**
 * Resolves when `condition` holds. Rejects with an error that names the condition if it does not hold in time.
 * @param what names the condition; a function is called when the wait has failed, so that its text can describe the state at that time
 */
export async function waitUntil(
  what: string | (() => string),
  condition: () => boolean | Promise<boolean>,
  limitMs: number = WAIT_LIMIT_MS,
): Promise<void> {
  const deadline = performance.now() + limitMs;
  while (!(await condition())) {
    if (performance.now() > deadline) {
      throw new Error(`waited ${limitMs} ms in vain until ${typeof what === 'string' ? what : what()}`);
    }
    await sleep(POLL_MS);
  }
}
