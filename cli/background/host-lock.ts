import { join } from 'node:path';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { acquireProcessLock, LockHeldError, type LockMessages } from '../../shared/base/files/process-lock.js';
import { runtime } from '../client/process-runtime.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';

const LOCK_FILE = 'up-down.lock';

const POLL_MS = 100;

/**
 * Runs `work` while no other `odmoe up` or `odmoe down` of the cluster runs on this host, because each reads the records of the others.
 * Waits up to waitMs for another one to end; `onWait` is called once with the reason.
 * @throws TIMEOUT, which names the other process
 */
export async function withHostLock<Result>(
  directory: string,
  waitMs: number,
  onWait: (reason: string) => void,
  work: () => Promise<Result>,
): Promise<Result> {
  const lock = await waitForLock(directory, waitMs, onWait);
  try {
    return await work();
  } finally {
    await lock.release();
  }
}

async function waitForLock(
  directory: string,
  waitMs: number,
  onWait: (reason: string) => void,
): ReturnType<typeof acquireProcessLock> {
  await makeDirectory(directory);
  return withPeerDeadline(runtime, waitMs, async (hasPassed) => {
    for (let isReported = false; ; isReported = true) {
      try {
        return await acquireProcessLock(join(directory, LOCK_FILE), MESSAGES);
      } catch (thrown) {
        if (!(thrown instanceof LockHeldError)) throw thrown;
        if (hasPassed()) {
          throw new OdmoeError('TIMEOUT', `${thrown.message} (waited ${waitMs / 1000} s)`, { cause: thrown });
        }
        if (!isReported) onWait(thrown.message);
      }
      await runtime.sleep(POLL_MS);
    }
  });
}

async function makeDirectory(directory: string): Promise<void> {
  try {
    await makeDirectories(directory, 0o700);
  } catch (thrown) {
    throw new OdmoeError('STORAGE_FAILED', `cannot make ${directory}: ${toOdmoeError(thrown).message}`, {
      cause: thrown,
    });
  }
}

const MESSAGES: LockMessages = {
  held: (holder, orRemove) =>
    `${holder} runs \`odmoe up\` or \`odmoe down\` of this cluster; wait for it or end it${orRemove}`,
  keepsComingBack: (path) => `${path}: keeps coming back; remove it when no \`odmoe up\` or \`odmoe down\` runs`,
  takenAway: 'another `odmoe up` or `odmoe down` has taken the lock away; run the command again',
  again: 'run the command again',
};
