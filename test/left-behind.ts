import assert from 'node:assert/strict';
import type { Context } from 'mocha';
import { living } from '../shared/base/runtime/living.js';

/** Time for things that end by themselves after a test, as sockets do. */
const GRACE_MS = 3000;
const LOOK_MS = 20;

/** The path of the file whose tests run now. */
let file = '';
/** Names of the things that earlier files of this process left behind. Each is reported once. */
let before: readonly string[] = [];

/**
 * If files run at the same time, Mocha calls this after the tests of each file; otherwise it calls it once, after the last file. All that the
 * tests began must have ended by then. A timer, listener, channel, thread or file that is left behind fails the tests, with its name.
 */
export const mochaHooks = {
  beforeEach(this: Context): void {
    file = this.currentTest?.file ?? '';
  },

  async afterAll(): Promise<void> {
    for (let waitedMs = 0; livingBeyond(before).length > 0 && waitedMs < GRACE_MS; waitedMs += LOOK_MS) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    const names = livingBeyond(before);
    before = living().names();
    assert.deepEqual(names, [], `the tests of ${file} have left these behind`);
  },
};

/** Names of the living things now, without those in `known`. A name in `known` removes one living thing of that name. */
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
