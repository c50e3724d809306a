import assert from 'node:assert/strict';
import type { Context } from 'mocha';
import { living } from '../shared/base/runtime/living.js';

/** What ends by itself after a test, as sockets do, gets so long. */
const GRACE_MS = 3000;
const LOOK_MS = 20;

/** The file whose tests run. */
let file = '';
/** What earlier files of this process have left behind: told once. */
let told: readonly string[] = [];

/**
 * Mocha calls this after the tests of each file where files run at the same time, else once, after the last file. What the tests began has
 * ended then: whoever leaves a timer, a listener, a channel, a thread or a file behind fails, by name.
 */
export const mochaHooks = {
  beforeEach(this: Context): void {
    file = this.currentTest?.file ?? '';
  },

  async afterAll(): Promise<void> {
    for (let waitedMs = 0; livingBeyond(told).length > 0 && waitedMs < GRACE_MS; waitedMs += LOOK_MS) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    const names = livingBeyond(told);
    told = living().names();
    assert.deepEqual(names, [], `the tests of ${file} have left these behind`);
  },
};

/** What lives now, without what lived when `known` were the names. */
export function livingBeyond(known: readonly string[]): string[] {
  const unseen = [...known];
  return living()
    .names()
    .filter((name) => {
      const index = unseen.indexOf(name);
      if (index >= 0) unseen.splice(index, 1);
      return index < 0;
    });
}
