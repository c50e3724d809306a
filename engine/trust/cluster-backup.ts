/** One file with all that makes a main the main of its cluster: for a lost disk. Who has the file owns the cluster. */
import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { readBoundedFile, readJsonFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { restoredRoster } from './roster-changes.js';
import {
  AUTHORITY_FILES,
  authorityDirectory,
  createAuthorityFiles,
  readAuthorityFiles,
  removeUnfinished,
  TRIAL_PREFIX,
  type AuthorityState,
} from './authority-files.js';
import { makePrivateDirectory, writePrivateFile } from './key-files.js';
import { EMPTY_TOKEN_BOOK } from './token-book.js';

const FORMAT = 'odmoe cluster backup 1';
const BACKUP_LIMIT_BYTES = 8 * 1024 * 1024;

const ERRORS: FileErrors = {
  missing: 'CONFIG_INVALID',
  invalid: 'CONFIG_INVALID',
  remedy: 'give a file that odmoe cluster backup wrote',
};

const NAMES = Object.values(AUTHORITY_FILES);
const backupSchema = z.strictObject({
  format: z.literal(FORMAT),
  cluster: z.string(),
  /** Contents by name, in base 64. */
  files: z.record(z.enum(NAMES), z.string()),
  /** SHA-256 of the files, as JSON. It finds damage; the authority's own signatures find lies. */
  sha256: z.string(),
});

/**
 * Writes the cluster's authority, roster and tokens into one new file that only this user may read.
 * @throws CONFIG_INVALID there is no authority; USAGE the path is taken; STORAGE_FAILED, STORAGE_FULL
 */
export async function backupCluster(stateDirectory: string, cluster: string, path: string): Promise<void> {
  // A damaged file is noticed now, not when the backup is needed.
  if ((await readAuthorityFiles(stateDirectory, cluster)) === null) {
    const where = authorityDirectory(stateDirectory);
    const advice = "run this on main's host, as the user who runs main";
    throw new OdmoeError('CONFIG_INVALID', `there is no authority of "${cluster}" at ${where}: ${advice}`);
  }
  const directory = authorityDirectory(stateDirectory);
  const contents = await Promise.all(
    NAMES.map(
      async (name) => [name, await readBoundedFile(join(directory, name), BACKUP_LIMIT_BYTES, ERRORS)] as const,
    ),
  );
  const files = Object.fromEntries(contents.map(([name, bytes]) => [name, bytes.toString('base64')]));
  const backup = { format: FORMAT, cluster, files, sha256: digestOf(files) };
  await writeNewFile(path, `${JSON.stringify(backup, null, 1)}\n`);
}

/** Writes a file that only this user may read, all of it or nothing. Throws USAGE there is one already; STORAGE_FAILED, STORAGE_FULL. */
async function writeNewFile(path: string, text: string): Promise<void> {
  const file = await openCounted(path, 'wx', 0o600).catch((thrown: unknown) => {
    if (systemErrorCode(thrown) !== 'EEXIST') throw writeFailure(thrown, path, null);
    throw new OdmoeError('USAGE', `${path} exists already, and a backup replaces no file: name a new one`);
  });
  try {
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await syncDirectory(dirname(path));
  } catch (thrown) {
    // Half of a backup is of no use, and the next try would find its name taken.
    await rm(path, { force: true }).catch(() => undefined);
    throw writeFailure(thrown, path, null);
  }
}

/**
 * Makes this host's state directory that of the backup. Nothing is changed if the cluster has an authority here, or if the backup is damaged. The
 * roster's count goes on far above the backup's, as nodes take no lower one than they have seen. Join tokens are left out: those that were revoked or
 * used up after the backup would be good again.
 * @param nowMs milliseconds since 1970
 * @throws CONFIG_INVALID, STORAGE_FULL, STORAGE_FAILED
 */
export async function restoreCluster(
  stateDirectory: string,
  cluster: string,
  path: string,
  nowMs: number,
): Promise<AuthorityState> {
  const { data: backup } = backupSchema.safeParse(await readJsonFile(path, BACKUP_LIMIT_BYTES, ERRORS));
  if (backup === undefined) throw damaged(path, 'not a backup of a cluster, or of another version');
  if (backup.sha256 !== digestOf(backup.files)) throw damaged(path, 'the backup is damaged');
  if (backup.cluster !== cluster) {
    throw damaged(path, `a backup of the cluster "${backup.cluster}", and this is "${cluster}" (--cluster)`);
  }
  const state = await checkedState(stateDirectory, cluster, backup.files);
  const restored = { ...state, roster: restoredRoster(state.roster, nowMs), tokens: EMPTY_TOKEN_BOOK };
  await createAuthorityFiles(stateDirectory, restored);
  return restored;
}

/** Reads the files of the backup as main would: in a directory of their own, which is removed. */
async function checkedState(
  stateDirectory: string,
  cluster: string,
  files: Readonly<Record<string, string>>,
): Promise<AuthorityState> {
  await makePrivateDirectory(stateDirectory);
  await removeUnfinished(stateDirectory);
  const trial = await mkdtemp(join(stateDirectory, TRIAL_PREFIX));
  try {
    const directory = authorityDirectory(trial);
    await makePrivateDirectory(directory);
    for (const [name, contents] of Object.entries(files)) {
      await writePrivateFile(join(directory, name), Buffer.from(contents, 'base64'));
    }
    const state = await readAuthorityFiles(trial, cluster);
    if (state === null) throw damaged(trial, 'the files of the backup have gone');
    return state;
  } finally {
    await rm(trial, { recursive: true, force: true });
  }
}

function digestOf(files: Readonly<Record<string, string>>): string {
  return createHash('sha256')
    .update(JSON.stringify(NAMES.map((name) => files[name])))
    .digest('hex');
}

function damaged(path: string, reason: string): OdmoeError {
  return new OdmoeError('CONFIG_INVALID', `${path}: ${reason}; ${ERRORS.remedy}`);
}
