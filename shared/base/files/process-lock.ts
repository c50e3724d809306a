import { link, readFile, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { z } from 'zod';
import { OdmoeError } from '../errors/odmoe-error.js';
import { systemErrorCode } from '../errors/system-failure.js';
import { writeFailure } from './storage-error.js';
import { WallRuntime } from '../runtime/wall-runtime.js';
import { openCounted } from './counted-file.js';

const holderSchema = z.object({
  pid: z.int().min(1),
  host: z.string(),
  /** Start time of the process, as the system counts it; null if the system does not report it. Guards against a reused pid. */
  started: z.string().nullable(),
  token: z.string(),
});
type Holder = z.infer<typeof holderSchema>;

/** Most attempts to take over a dead process's lock. Each failed attempt means that another process has crashed, too. */
const TAKEOVER_ATTEMPTS = 20;
/** Pause while another process removes the lock of a dead one. */
const TAKEOVER_WAIT_MS = 25;

/** A lock is shared by the processes of one system, so it uses the system's clock. */
const SYSTEM = new WallRuntime();

/** Error codes of link() on file systems without hard links. */
const NO_LINK_CODES: ReadonlySet<string> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/** The lock for work that only one process does at a time. The process holds it during that work. */
export interface ProcessLock {
  /** @throws STORAGE_FAILED when the lock has been taken away */
  assertHeld(): Promise<void>;
  release(): Promise<void>;
}

/** Messages about a lock. Each begins with its subject and ends with the remedy. `path`: the file of the lock. */
export interface LockMessages {
  /**
   * `holder`: "process 12", with " on HOST" if that is another machine. `orRemove`: words to end with, which say when to remove the lock by hand: only
   * where nobody here can know whether its holder lives; the lock of a dead process of this machine is taken over. Else they are empty.
   */
  held(holder: string, orRemove: string): string;
  /** A dead process's lock turns up again and again. */
  keepsComingBack(path: string): string;
  takenAway: string;
  /** The step to repeat after a file that hinders has been removed: "run odmoe pack again". */
  again: string;
}

/** Thrown while another process holds the lock. */
export class LockHeldError extends OdmoeError {}

/**
 * Takes the lock at the file `path`. The lock of a dead process is taken over.
 * @throws LockHeldError (STORAGE_FAILED) while another process holds it
 */
export async function acquireProcessLock(path: string, messages: LockMessages): Promise<ProcessLock> {
  const token = SYSTEM.randomId();
  const own: Holder = { pid: process.pid, host: hostname(), started: await processStart(process.pid), token };
  const ownPath = `${path}.${token}`;
  try {
    await writeFile(ownPath, JSON.stringify(own), { flag: 'wx' });
  } catch (thrown) {
    throw writeFailure(thrown, ownPath, null);
  }
  try {
    for (let attempt = 0; attempt < TAKEOVER_ATTEMPTS; attempt += 1) {
      if (await createIfAbsent(ownPath, path)) return heldLock(path, token, messages);
      await removeIfDead(path, ownPath, messages);
    }
  } finally {
    await rm(ownPath, { force: true });
  }
  throw new LockHeldError('STORAGE_FAILED', messages.keepsComingBack(path));
}

function heldLock(path: string, token: string, messages: LockMessages): ProcessLock {
  const isOwn = async (): Promise<boolean> => parseHolder(await readLock(path))?.token === token;
  return {
    async assertHeld(): Promise<void> {
      if (!(await isOwn())) throw new OdmoeError('STORAGE_FAILED', messages.takenAway);
    },
    async release(): Promise<void> {
      if (await isOwn()) await rm(path, { force: true });
    },
  };
}

/** Creates the lock with its content in one step, so that no process sees it half-written. */
async function createIfAbsent(contentPath: string, path: string): Promise<boolean> {
  try {
    await link(contentPath, path).catch(async (thrown: unknown) => {
      // File systems without hard links (exFAT, some network ones) need two operations: this is nearly one step.
      if (!NO_LINK_CODES.has(systemErrorCode(thrown))) throw thrown;
      await writeFile(path, await readFile(contentPath), { flag: 'wx' });
    });
    return true;
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'EEXIST') return false;
    throw writeFailure(thrown, path, null);
  }
}

async function removeIfDead(path: string, ownPath: string, messages: LockMessages): Promise<void> {
  const text = await readLock(path);
  if (text === null) return;
  const holder = parseHolder(text);
  if (holder !== null && (holder.host !== hostname() || (await isAlive(holder)))) {
    const isHere = holder.host === hostname();
    const name = `process ${holder.pid}${isHere ? '' : ` on ${holder.host}`}`;
    throw new LockHeldError('STORAGE_FAILED', messages.held(name, isHere ? '' : `, or, if it is gone, remove ${path}`));
  }
  await removeDead(path, text, ownPath, messages);
}

/**
 * Removes a dead process's lock. Several processes may have seen it die, but only one at a time may remove it. That one checks again first,
 * because the lock may belong to a living process by then. No other process can replace a lock that exists.
 */
async function removeDead(path: string, deadText: string, ownPath: string, messages: LockMessages): Promise<void> {
  const removalPath = `${path}.removal`;
  if (!(await createIfAbsent(ownPath, removalPath))) {
    const remover = parseHolder(await readLock(removalPath));
    if (remover !== null && !(await isAlive(remover))) {
      throw new LockHeldError(
        'STORAGE_FAILED',
        `${removalPath}: left by process ${remover.pid}, which has died; remove it and ${messages.again}`,
      );
    }
    await SYSTEM.sleep(TAKEOVER_WAIT_MS);
    return;
  }
  try {
    if ((await readLock(path)) === deadText) await rm(path, { force: true });
  } finally {
    await rm(removalPath, { force: true });
  }
}

/** Content of the lock; null when there is none. */
async function readLock(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return null;
    throw writeFailure(thrown, path, null);
  }
}

/** Null for content that cannot be parsed: no living process has written it. */
function parseHolder(text: string | null): Holder | null {
  if (text === null) return null;
  try {
    return holderSchema.parse(JSON.parse(text));
  } catch {
    return null;
  }
}

async function isAlive(holder: Holder): Promise<boolean> {
  try {
    process.kill(holder.pid, 0);
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'EPERM') return true;
    return false;
  }
  return holder.started === null || (await processStart(holder.pid)) === holder.started;
}

/** Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); null if there is no /proc. */
async function processStart(pid: number): Promise<string | null> {
  try {
    const handle = await openCounted(`/proc/${pid}/stat`, 'r');
    try {
      const text = await handle.readFile('utf8');
      // The second field is a name in parentheses that may hold anything, so fields are counted after its end.
      return text.slice(text.lastIndexOf(')') + 2).split(' ')[19] ?? null;
    } finally {
      await handle.close();
    }
  } catch {
    return null;
  }
}
