import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { withHostLock } from '../../cli/background/host-lock.js';

describe('the lock of a cluster on a host', () => {
  let parent: string;
  before(() => (parent = mkdtempSync(join(tmpdir(), 'odmoe-host-lock-'))));
  after(() => rmSync(parent, { recursive: true }));

  it('is held while the work runs, and released at its end, also where it fails', async () => {
    const directory = join(parent, 'run');
    const inside = (): readonly string[] => readdirSync(directory);
    const nobodyElse = (reason: string): void => assert.fail(reason);
    const run = (work: () => Promise<string>): Promise<string> => withHostLock(directory, 0, nobodyElse, work);
    let held: readonly string[] = [];
    const look = async (): Promise<string> => {
      held = inside();
      return 'done';
    };
    assert.equal(await run(look), 'done');
    assert.ok(held.includes('up-down.lock'));
    assert.deepEqual(inside(), []);
    await assert.rejects(
      run(() => Promise.reject(new Error('it failed'))),
      /it failed/,
    );
    assert.deepEqual(inside(), []);
  });
});
