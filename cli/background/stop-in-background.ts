import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { daemonName } from '../demo/daemon-process.js';
import { isRunning } from './process-identity.js';
import { removeRecord, type ProcessRecord } from './process-records.js';
import { identityOf } from './start-in-background.js';
import { runtime } from '../client/process-runtime.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';

/** How long a daemon gets to stop by itself; its own bound is shorter. A main gets its main.stop_grace_ms before that. */
export const TERMINATE_GRACE_MS = 8_000;

/** How long a killed process may take to be gone. */
const KILL_GRACE_MS = 2_000;

const POLL_MS = 20;

export interface StopOutcome {
  kind: 'stopped' | 'killed' | 'wasNotRunning';
  id: string;
  pid: number;
}

/**
 * Stops the daemon recorded: SIGTERM, then SIGKILL. A record whose process has ended, or whose number another process has now, is
 * removed and nobody is sent anything. TIMEOUT when the process survives.
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
    // It ended by itself since it was looked at.
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
