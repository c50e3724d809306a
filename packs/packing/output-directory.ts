import { readdir, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { type ProcessLock, acquireProcessLock } from '../../shared/base/files/process-lock.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import {
  FITTING_DIRECTORY,
  isPackEntry,
  JOURNAL_FILE,
  LOCK_FILE,
  MANIFEST_FILE,
  PARTIAL_SUFFIX,
} from '../format/pack-layout.js';

/** Most foreign files that one message names. */
const FOREIGN_NAMED = 3;

/** Creates the directory, or checks that packing left everything in it. @throws USAGE, STORAGE_FULL, STORAGE_FAILED */
export async function prepareOutputDirectory(checkpointDirectory: string, outputDirectory: string): Promise<string> {
  try {
    await makeDirectories(outputDirectory);
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'EEXIST' || systemErrorCode(thrown) === 'ENOTDIR') {
      throw new OdmoeError('USAGE', `${outputDirectory}: not a directory; choose another place for the pack`);
    }
    throw writeFailure(thrown, outputDirectory, null);
  }
  const absolute = await realpath(outputDirectory);
  if (absolute === (await realpath(checkpointDirectory))) {
    throw new OdmoeError('USAGE', `${absolute}: is the checkpoint itself; choose another directory for the pack`);
  }
  const problem = foreignProblem(await readdir(absolute));
  if (problem !== null) {
    throw new OdmoeError('USAGE', `${absolute}: ${problem}; choose an empty or new directory for the pack`);
  }
  return absolute;
}

/** The reason why packing into a directory with these entries is refused; null: it is allowed. Pure. */
function foreignProblem(names: readonly string[]): string | null {
  const foreign = names.filter((name) => !isPackEntry(name));
  if (foreign.length > 0) {
    const more = foreign.length > FOREIGN_NAMED ? ` and ${foreign.length - FOREIGN_NAMED} more` : '';
    return `holds files that are no pack's (${foreign.slice(0, FOREIGN_NAMED).join(', ')}${more})`;
  }
  const isOurs = names.includes(MANIFEST_FILE) || names.includes(JOURNAL_FILE);
  const others = names.filter((name) => !name.startsWith(LOCK_FILE) && !name.endsWith(PARTIAL_SUFFIX));
  if (!isOurs && others.length > 0) return `holds ${others.slice(0, FOREIGN_NAMED).join(', ')} of something else`;
  return null;
}

/** Removes the files of an unfinished pack, except the files in `keep` and the lock. */
export async function clearUnfinished(directory: string, keep: ReadonlySet<string>): Promise<void> {
  for (const name of await readdir(directory)) {
    if (!isPackEntry(name) || keep.has(name) || name.startsWith(LOCK_FILE)) continue;
    await rm(join(directory, name), { recursive: name === FITTING_DIRECTORY });
  }
}

/**
 * Takes the lock for writing to an output directory; one process holds it at a time.
 * @throws LockHeldError (STORAGE_FAILED) while another process is packing into it
 */
export async function acquirePackingLock(directory: string): Promise<ProcessLock> {
  return acquireProcessLock(join(directory, LOCK_FILE), {
    held: (holder, orRemove) => `${directory}: ${holder} is packing into it; wait for it${orRemove}`,
    keepsComingBack: (path) => `${path}: keeps coming back; remove it when nothing packs into ${directory}`,
    takenAway: `${directory}: the lock was taken away by another process; run odmoe pack again`,
    again: 'run odmoe pack again',
  });
}
