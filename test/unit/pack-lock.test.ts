import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { acquirePackingLock } from '../../packs/packing/output-directory.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { LockHeldError } from '../../shared/base/files/process-lock.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

const LOCK = 'packing.lock';

describe('the lock of a directory for packing', () => {
  it('is held by one process at a time, and leaves nothing behind', async () => {
    await withTemporaryDirectory(async (directory) => {
      const lock = await acquirePackingLock(directory);
      await lock.assertHeld();
      await assert.rejects(acquirePackingLock(directory), (thrown: unknown) => {
        assert.ok(thrown instanceof LockHeldError);
        assert.match(thrown.message, new RegExp(`process ${process.pid} is packing into it; wait for it$`));
        return true;
      });
      await lock.release();
      assert.deepEqual(await readdir(directory), []);
      await (await acquirePackingLock(directory)).release();
    });
  });

  it('goes to exactly one of many simultaneous requests, whatever was there', async () => {
    for (const before of [null, 'not a lock', await lockOfDeadProcess()]) {
      await withTemporaryDirectory(async (directory) => {
        if (before !== null) await writeFile(join(directory, LOCK), before);
        const results = await Promise.allSettled(Array.from({ length: 12 }, () => acquirePackingLock(directory)));
        const held = results.filter((result) => result.status === 'fulfilled');
        assert.equal(held.length, 1, `${held.length} hold the lock after ${before}`);
        await held[0]?.value.assertHeld();
        await held[0]?.value.release();
        assert.deepEqual(await readdir(directory), []);
      });
    }
  });

  it('is taken over from a dead process and from a reused process id', async () => {
    const reused = JSON.stringify({ pid: process.pid, host: hostname(), started: '1', token: 'x' });
    const stale = process.platform === 'linux' ? [await lockOfDeadProcess(), reused] : [await lockOfDeadProcess()];
    for (const content of stale) {
      await withTemporaryDirectory(async (directory) => {
        await writeFile(join(directory, LOCK), content);
        await (await acquirePackingLock(directory)).release();
      });
    }
  });

  it('is never taken over from another machine', async () => {
    // A process with that number on this machine, or its absence, says nothing about the other machine.
    const { pid: deadPid } = JSON.parse(await lockOfDeadProcess()) as { pid: number };
    for (const pid of [process.pid, deadPid]) {
      for (const started of [null, '1']) {
        await withTemporaryDirectory(async (directory) => {
          const foreign = JSON.stringify({ pid, host: 'some-other-machine', started, token: 'x' });
          await writeFile(join(directory, LOCK), foreign);
          const held = new RegExp(
            `process ${pid} on some-other-machine is packing .*, or, if it is gone, remove .*${LOCK}$`,
          );
          await assert.rejects(acquirePackingLock(directory), held);
          assert.equal(await readFile(join(directory, LOCK), 'utf8'), foreign);
        });
      }
    }
  });

  it('notices that another process took it, and then leaves the new lock alone', async () => {
    await withTemporaryDirectory(async (directory) => {
      const lock = await acquirePackingLock(directory);
      await writeFile(join(directory, LOCK), 'somebody else');
      await assert.rejects(
        lock.assertHeld(),
        (thrown: unknown) => thrown instanceof OdmoeError && /taken away/.test(thrown.message),
      );
      await lock.release();
      assert.equal(await readFile(join(directory, LOCK), 'utf8'), 'somebody else');
    });
  });
});

/** The content of a lock whose process has exited. */
async function lockOfDeadProcess(): Promise<string> {
  const child = spawn(process.execPath, ['-e', '']);
  await once(child, 'exit');
  return JSON.stringify({ pid: child.pid, host: hostname(), started: '123', token: 'dead' });
}
