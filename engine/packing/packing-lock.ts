import { randomBytes } from 'node:crypto';
import { link, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/errors/index.js';
import { systemErrorCode } from '../../shared/model/read-file.js';
import { LOCK_FILE } from '../../shared/pack/pack-layout.js';
import { writeFailure } from './storage-error.js';

const holderSchema = z.object({
  pid: z.int().min(1),
  host: z.string(),
  /** When the process started, as the system counts it; null where it does not tell. Guards against a reused pid. */
  started: z.string().nullable(),
  token: z.string(),
});
type Holder = z.infer<typeof holderSchema>;

/** Times a dead process's lock may turn up before giving up: each means that others crash on the directory too. */
const TAKEOVER_ATTEMPTS = 5;

/** What link() fails with where there are no hard links. */
const NO_LINK_CODES: ReadonlySet<string> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/** The right to write to an output directory; one process has it at a time. */
export interface PackingLock {
  /** @throws STORAGE_FAILED when the lock has been taken away */
  assertHeld(): Promise<void>;
  release(): Promise<void>;
}

/** What is thrown while another process has the directory. */
export class DirectoryLockedError extends OdmoeError {}

/**
 * Takes the lock of a directory; that of a process that has died is taken over.
 * @throws DirectoryLockedError (STORAGE_FAILED) while another process is packing into it
 */
export async function acquirePackingLock(directory: string): Promise<PackingLock> {
  const path = join(directory, LOCK_FILE);
  const token = randomBytes(8).toString('hex');
  const own: Holder = { pid: process.pid, host: hostname(), started: await processStart(process.pid), token };
  const ownPath = `${path}.${token}`;
  try {
    await writeFile(ownPath, JSON.stringify(own), { flag: 'wx' });
  } catch (thrown) {
    throw writeFailure(thrown, ownPath, null);
  }
  try {
    for (let attempt = 0; attempt < TAKEOVER_ATTEMPTS; attempt += 1) {
      if (await createIfAbsent(ownPath, path)) return heldLock(path, directory, token);
      await removeIfDead(path, directory);
    }
  } finally {
    await rm(ownPath, { force: true });
  }
  throw new DirectoryLockedError(
    'STORAGE_FAILED',
    `${path}: keeps coming back; remove it when nothing packs into ${directory}`,
  );
}

function heldLock(path: string, directory: string, token: string): PackingLock {
  const isOwn = async (): Promise<boolean> => parseHolder(await readLock(path))?.token === token;
  return {
    async assertHeld(): Promise<void> {
      if (await isOwn()) return;
      throw new OdmoeError(
        'STORAGE_FAILED',
        `${directory}: the lock was taken away by another process; run odmoe pack again`,
      );
    },
    async release(): Promise<void> {
      if (await isOwn()) await rm(path, { force: true });
    },
  };
}

/** Creates the lock with its content in one step, so that nobody sees it half-written. */
async function createIfAbsent(contentPath: string, path: string): Promise<boolean> {
  try {
    await link(contentPath, path).catch(async (thrown: unknown) => {
      // File systems without hard links (exFAT, some network ones): nearly one step.
      if (!NO_LINK_CODES.has(systemErrorCode(thrown))) throw thrown;
      await writeFile(path, await readFile(contentPath), { flag: 'wx' });
    });
    return true;
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'EEXIST') return false;
    throw writeFailure(thrown, path, null);
  }
}

async function removeIfDead(path: string, directory: string): Promise<void> {
  const text = await readLock(path);
  if (text === null) return;
  const holder = parseHolder(text);
  if (holder !== null && (holder.host !== hostname() || (await isAlive(holder)))) {
    const where = holder.host === hostname() ? '' : ` on ${holder.host}`;
    throw new DirectoryLockedError(
      'STORAGE_FAILED',
      `${directory}: process ${holder.pid}${where} is packing into it; wait for it, or, if it is gone, remove ${path}`,
    );
  }
  // Two processes may see the same dead holder: whoever moves away the wrong (newer) lock puts it back.
  const aside = `${path}.${randomBytes(8).toString('hex')}`;
  try {
    await rename(path, aside);
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return;
    throw writeFailure(thrown, path, null);
  }
  if ((await readLock(aside)) !== text) await createIfAbsent(aside, path);
  await rm(aside, { force: true });
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

/** Null for a content that cannot be understood: it belongs to nobody alive. */
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

/** Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); null where there is no /proc. */
async function processStart(pid: number): Promise<string | null> {
  try {
    const handle = await open(`/proc/${pid}/stat`, 'r');
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
