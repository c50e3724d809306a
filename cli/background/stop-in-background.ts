import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { daemonName } from '../demo/daemon-process.js';
import { isRunning } from './process-identity.js';
import { removeRecord, type ProcessRecord } from './process-records.js';
import { identityOf } from './start-in-background.js';
import { runtime } from '../client/process-runtime.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';

/** Time that a daemon gets to stop by itself; the daemon's own limit is shorter. Main gets its main.stop_grace_ms in addition. */
export const TERMINATE_GRACE_MS = 8_000;

/** Time in which a killed process must disappear. */
const KILL_GRACE_MS = 2_000;

const POLL_MS = 20;

export interface StopOutcome {
  kind: 'stopped' | 'killed' | 'wasNotRunning';
  id: string;
  pid: number;
}

/**
 * Stops the recorded daemon: SIGTERM, then SIGKILL. If its process has ended, or another process now has its number, the record is removed
 * and no signal is sent. TIMEOUT if the process survives.
 */
export async function stopInBackground(
  directory: string,
  record: ProcessRecord,
  graceMs: number = TERMINATE_GRACE_MS,
): Promise<StopOutcome> {
  const { id, pid } = record;
  let kind: StopOutcome['kind'] = 'wasNotRunning';
  if (await isRunning(identityOf(record))) {
    kind = 'stopped';
    signal(pid, 'SIGTERM');
    if (!(await goneWithin(record, graceMs))) {
      kind = 'killed';
      signal(pid, 'SIGKILL');
      if (!(await goneWithin(record, KILL_GRACE_MS))) {
        throw new OdmoeError('TIMEOUT', `${daemonName(record)} (process ${pid}) cannot be killed: look at it with ps`);
      }
    }
  }
  await removeRecord(directory, id, pid);
  return { kind, id, pid };
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // The process ended by itself after the check.
    if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return;
    throw error;
  }
}

async function goneWithin(record: ProcessRecord, timeoutMs: number): Promise<boolean> {
  return withPeerDeadline(runtime, timeoutMs, async (hasPassed) => {
    while (await isRunning(identityOf(record))) {
      if (hasPassed()) return false;
      await runtime.sleep(POLL_MS);
    }
    return true;
  });
}
