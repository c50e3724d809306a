import { setTimeout as sleep } from 'node:timers/promises';

const POLL_MS = 10;
/** How long anything may take before a test gives it up: other tests, and a compiler, may be at work beside it. */
export const WAIT_LIMIT_MS = 60_000;

/**
 * Resolves when `condition` holds; rejects, naming it, when it never does.
 * @param what names the condition; a function is asked when the wait has failed, so that it can say what stood there then
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
