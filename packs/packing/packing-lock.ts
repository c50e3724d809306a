import { join } from 'node:path';
import { LOCK_FILE } from '../format/pack-layout.js';
import { acquireProcessLock, type ProcessLock } from '../../shared/base/files/process-lock.js';

/**
 * The right to write to an output directory; one process has it at a time.
 * @throws LockHeldError (STORAGE_FAILED) while another process is packing into it
 */
export async function acquirePackingLock(directory: string): Promise<ProcessLock> {
  return acquireProcessLock(join(directory, LOCK_FILE), {
    held: (holder, path) =>
      `${directory}: ${holder} is packing into it; wait for it, or, if it is gone, remove ${path}`,
    keepsComingBack: (path) => `${path}: keeps coming back; remove it when nothing packs into ${directory}`,
    takenAway: `${directory}: the lock was taken away by another process; run odmoe pack again`,
    again: 'run odmoe pack again',
  });
}
