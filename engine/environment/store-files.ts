/** The directory of a store that only one process uses, with files that only its user may read. */
import { readdir, rename, rm, stat, utimes, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { lockFile } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { openFile, readWholeFile } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { makePrivateDirectory } from '../trust/key-files.js';

const PRIVATE_FILE = 0o600;
/** It stays there: the system takes the lock away when the process ends. */
const LOCK_FILE = 'lock';
const PARTIAL = '.partial';

export interface StoredFile {
  readonly name: string;
  readonly bytes: number;
  /** Milliseconds since 1970 at which it was written, or marked as used. */
  readonly usedMs: number;
}

/** Each call rejects with STORAGE_FULL or STORAGE_FAILED. Names are plain file names. */
export interface StoreFiles {
  /** All files, but for the lock. Unfinished ones are removed. */
  list(): Promise<StoredFile[]>;
  /** The bytes of a file; null: it is not there. */
  read(name: string): Promise<Uint8Array | null>;
  /** At most so many bytes from the beginning of a file; null: it is not there. */
  readStart(name: string, bytes: number): Promise<Uint8Array | null>;
  /** Writes a file under another name, until publish() gives it its own. A file that fails is removed. */
  write(name: string, bytes: Uint8Array): Promise<void>;
  publish(name: string): Promise<void>;
  /** Replaces a small file in one step. It is on the disk then. */
  replace(name: string, text: string): Promise<void>;
  /** Removes files, also unfinished ones; missing ones count as removed. */
  remove(names: readonly string[]): Promise<void>;
  /** Marks files as used at this time (milliseconds since 1970). */
  touch(names: readonly string[], usedMs: number): Promise<void>;
  /** Lets another process have the directory. */
  close(): Promise<void>;
}

/** Opens the directory of a store; `outside` runs each piece of work. Null: another process uses it. */
export type OpenStoreFiles = (
  directory: string,
  runtime: Pick<Runtime, 'outside' | 'sleep'>,
) => Promise<StoreFiles | null>;

/** @throws STORAGE_FULL, STORAGE_FAILED */
export const openStoreFiles: OpenStoreFiles = async (directory, runtime) => {
  const lock = await runtime.outside(() => takeLock(directory));
  return lock && new LockedFiles(directory, lock, runtime);
};

/** Removes the store that lies in the directory, unless another process uses it. Does nothing where there is none. @throws STORAGE_FAILED */
export async function removeStore(directory: string): Promise<boolean> {
  const found = await stat(directory).catch(() => null);
  if (found === null) return false;
  const lock = await takeLock(directory);
  if (lock === null) return false;
  try {
    await failing(directory, () => rm(directory, { recursive: true, force: true }));
  } finally {
    await lock.close();
  }
  return true;
}

async function takeLock(directory: string): Promise<FileHandle | null> {
  const path = join(directory, LOCK_FILE);
  await makePrivateDirectory(directory);
  const file = await failing(path, () => openCounted(path, 'a', PRIVATE_FILE));
  let isHeld = false;
  try {
    isHeld = lockFile(file.fd, false);
  } finally {
    if (!isHeld) await file.close();
  }
  return isHeld ? file : null;
}

class LockedFiles implements StoreFiles {
  constructor(
    private readonly directory: string,
    private readonly lock: FileHandle,
    private readonly runtime: Pick<Runtime, 'outside'>,
  ) {}

  list(): Promise<StoredFile[]> {
    return this.work('', async () => {
      const found: StoredFile[] = [];
      for (const name of (await readdir(this.directory)).sort()) {
        if (name === LOCK_FILE) continue;
        const path = join(this.directory, name);
        if (name.endsWith(PARTIAL)) await rm(path, { force: true, recursive: true });
        else {
          const entry = await stat(path);
          // Nothing of the store's is a directory, so it is left alone.
          if (entry.isFile()) found.push({ name, bytes: entry.size, usedMs: entry.mtimeMs });
        }
      }
      return found;
    });
  }

  read(name: string): Promise<Uint8Array | null> {
    return this.work(name, (path) => unlessMissing(() => readWholeFile(path)));
  }

  readStart(name: string, bytes: number): Promise<Uint8Array | null> {
    return this.work(name, (path) => unlessMissing(() => startOf(path, bytes)));
  }

  write(name: string, bytes: Uint8Array): Promise<void> {
    return this.work(name, async (path) => {
      const partial = path + PARTIAL;
      try {
        await rm(partial, { force: true });
        const file = await openCounted(partial, 'wx', PRIVATE_FILE);
        try {
          // Its checksums say later whether all of it has come to the disk, so nothing waits for that here.
          await file.writeFile(bytes);
        } finally {
          await file.close();
        }
      } catch (thrown) {
        await rm(partial, { force: true }).catch(() => undefined);
        throw thrown;
      }
    });
  }

  publish(name: string): Promise<void> {
    return this.work(name, (path) => rename(path + PARTIAL, path));
  }

  replace(name: string, text: string): Promise<void> {
    return this.work(name, (path) => replaceFile(path, text, PRIVATE_FILE));
  }

  remove(names: readonly string[]): Promise<void> {
    return this.work('', async (directory) => {
      for (const name of names) {
        await rm(join(directory, name), { force: true });
        await rm(join(directory, name + PARTIAL), { force: true });
      }
    });
  }

  touch(names: readonly string[], usedMs: number): Promise<void> {
    return this.work('', async (directory) => {
      for (const name of names) await unlessMissing(() => utimes(join(directory, name), usedMs / 1000, usedMs / 1000));
    });
  }

  close(): Promise<void> {
    return this.runtime.outside(() => this.lock.close());
  }

  private work<Result>(name: string, run: (path: string) => Promise<Result>): Promise<Result> {
    const path = join(this.directory, name);
    return this.runtime.outside(() => failing(path, () => run(path)));
  }
}

async function startOf(path: string, most: number): Promise<Uint8Array> {
  const file = await openFile(path);
  try {
    const bytes = new Uint8Array(most);
    const { bytesRead } = await file.read(bytes, 0, most, 0);
    return bytes.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}

async function unlessMissing<Result>(run: () => Promise<Result>): Promise<Result | null> {
  try {
    return await run();
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return null;
    throw thrown;
  }
}

async function failing<Result>(path: string, run: () => Promise<Result>): Promise<Result> {
  try {
    return await run();
  } catch (thrown) {
    if (thrown instanceof OdmoeError) throw thrown;
    throw writeFailure(thrown, path, null);
  }
}
