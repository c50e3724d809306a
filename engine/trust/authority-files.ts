import { readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { fileExists, readBoundedFile, readJsonFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { openAuthority, type Authority } from '../../shared/transport/trust/certificate.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { ROSTER_LIMIT_BYTES } from '../../shared/wire/limits.js';
import { readRoster, signRoster, type Roster } from './roster.js';
import { EMPTY_TOKEN_BOOK, parseTokenBook, type TokenBook } from './token-book.js';
import {
  makePrivateDirectory,
  readCertificate,
  readKey,
  writeCertificate,
  writeKey,
  writePrivateFile,
} from './key-files.js';

/** Main's key, roster and tokens. Whoever has the key owns the cluster. */
export interface AuthorityState {
  readonly authority: Authority;
  readonly roster: Roster;
  readonly tokens: TokenBook;
}

/** The files of an authority, in its directory. */
export const AUTHORITY_FILES = {
  key: 'authority.key',
  certificate: 'authority.crt',
  roster: 'roster',
  tokens: 'tokens',
} as const;

/** Enough for every token with all its uses. */
const TOKENS_LIMIT_BYTES = 4 * 1024 * 1024;

const ERRORS: FileErrors = {
  missing: 'STORAGE_FAILED',
  invalid: 'STORAGE_FAILED',
  remedy: 'put the directory aside and restore it from a backup, by odmoe cluster restore',
};

/** `stateDirectory`: that of the cluster, from the settings. */
export function authorityDirectory(stateDirectory: string): string {
  return join(stateDirectory, 'authority');
}

/** Beginning of the names of directories in which a backup is tried. */
export const TRIAL_PREFIX = 'restoring-';
const UNFINISHED = new RegExp(`^(authority\\.\\d+\\.partial|${TRIAL_PREFIX}.*)$`);

/**
 * Removes what a process that crashed has left of an authority that it was making or restoring: its key is in it. The caller holds the authority
 * (main-lock.ts), so that no process is at such work now.
 * @throws STORAGE_FAILED
 */
export async function removeUnfinished(stateDirectory: string): Promise<void> {
  try {
    for (const name of await readdir(stateDirectory)) {
      if (UNFINISHED.test(name)) await rm(join(stateDirectory, name), { recursive: true, force: true });
    }
  } catch (thrown) {
    if (systemErrorCode(thrown) !== 'ENOENT') throw writeFailure(thrown, stateDirectory, null);
  }
}

/** The authority's certificate (DER), without its key. @throws STORAGE_FAILED it is missing or damaged */
export async function readAuthorityCertificate(stateDirectory: string): Promise<Buffer> {
  return await readCertificate(join(authorityDirectory(stateDirectory), AUTHORITY_FILES.certificate), ERRORS);
}

/** Throws CONFIG_INVALID if the cluster has an authority. */
export async function requireNoAuthority(stateDirectory: string): Promise<void> {
  const directory = authorityDirectory(stateDirectory);
  if (await fileExists(directory)) throw authorityExists(directory);
}

/**
 * Writes a new authority to the disk, all of it or nothing. The caller holds the authority (main-lock.ts).
 * @throws CONFIG_INVALID there is one already; STORAGE_FULL, STORAGE_FAILED
 */
export async function createAuthorityFiles(stateDirectory: string, state: AuthorityState): Promise<void> {
  const directory = authorityDirectory(stateDirectory);
  const partial = `${directory}.${process.pid}.partial`;
  await requireNoAuthority(stateDirectory);
  await makePrivateDirectory(stateDirectory);
  try {
    await removeUnfinished(stateDirectory);
    await makePrivateDirectory(partial);
    const { authority, roster, tokens } = state;
    await writeKey(join(partial, AUTHORITY_FILES.key), authority.key);
    await writeCertificate(join(partial, AUTHORITY_FILES.certificate), authority.certificate);
    await writePrivateFile(join(partial, AUTHORITY_FILES.roster), signRoster(roster, authority));
    await writePrivateFile(join(partial, AUTHORITY_FILES.tokens), textOf(tokens));
    await rename(partial, directory);
    await syncDirectory(dirname(directory));
  } catch (thrown) {
    await rm(partial, { recursive: true, force: true }).catch(() => undefined);
    if (['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(systemErrorCode(thrown))) throw authorityExists(directory);
    throw writeFailure(thrown, directory, null);
  }
}

function authorityExists(directory: string): OdmoeError {
  const advice =
    'it is not replaced. Where it is not the one that you want, put this directory aside and say the same again: after a restore the machines of that backup go on, and in the place of a new one every machine has to join again';
  return new OdmoeError('CONFIG_INVALID', `${directory}: this cluster has an authority already, and ${advice}`);
}

/**
 * Main's authority, roster and tokens; null: the cluster has no authority. Everything is checked.
 * @throws STORAGE_FAILED a file is missing or damaged, or does not belong to the others; CONFIG_INVALID it is another cluster's
 */
export async function readAuthorityFiles(stateDirectory: string, cluster: string): Promise<AuthorityState | null> {
  const directory = authorityDirectory(stateDirectory);
  return (await fileExists(directory)) ? await readAuthorityDirectory(directory, cluster) : null;
}

async function readAuthorityDirectory(directory: string, cluster: string): Promise<AuthorityState> {
  const pathOf = (name: keyof typeof AUTHORITY_FILES): string => join(directory, AUTHORITY_FILES[name]);
  const key = await readKey(pathOf('key'), ERRORS);
  const certificate = await readCertificate(pathOf('certificate'), ERRORS);
  const authority = required(openAuthority(key, certificate), pathOf('certificate'));
  if (authority.cluster !== cluster) {
    const what = `the authority of the cluster "${authority.cluster}", and this is "${cluster}"`;
    throw new OdmoeError('CONFIG_INVALID', `${directory}: ${what}; put it where it belongs, or correct --cluster`);
  }
  const bytes = await readBoundedFile(pathOf('roster'), ROSTER_LIMIT_BYTES, ROSTER_ERRORS);
  const roster = required(readRoster(bytes, certificate), pathOf('roster'), ROSTER_ERRORS);
  return { authority, roster, tokens: await readTokens(pathOf('tokens')) };
}

/** Main keeps each roster twice (open-node-trust.ts). */
const ROSTER_ERRORS: FileErrors = {
  ...ERRORS,
  remedy: `copy nodes/ID/roster of this host's main over it, which is the same; or ${ERRORS.remedy}`,
};

const TOKENS_ERRORS: FileErrors = {
  ...ERRORS,
  remedy: 'remove the file: the join tokens are lost then, and odmoe token create makes new ones',
};

/** A list that is missing is an empty one: tokens are made anew in a moment. */
async function readTokens(path: string): Promise<TokenBook> {
  if (!(await fileExists(path))) return EMPTY_TOKEN_BOOK;
  const tokens = parseTokenBook(await readJsonFile(path, TOKENS_LIMIT_BYTES, TOKENS_ERRORS));
  return required(tokens ?? NO_TOKENS, path, TOKENS_ERRORS);
}

const NO_TOKENS: Refusal = { refusal: 'not a list of join tokens, or a damaged one' };

function required<Value extends object>(result: Value | Refusal, path: string, { remedy } = ERRORS): Value {
  if (!isRefusal(result)) return result;
  throw new OdmoeError('STORAGE_FAILED', `${path}: ${result.refusal}; ${remedy}`);
}

/**
 * Writes main's next roster to the disk. Main sends it to nobody before. Calls must not overlap. Returns the signed bytes.
 * @throws STORAGE_FULL, STORAGE_FAILED
 */
export async function writeAuthorityRoster(
  stateDirectory: string,
  roster: Roster,
  authority: Authority,
): Promise<Buffer> {
  const bytes = signRoster(roster, authority);
  await writePrivateFile(join(authorityDirectory(stateDirectory), AUTHORITY_FILES.roster), bytes);
  return bytes;
}

/** Writes main's next tokens to the disk, before main acts on them. Calls must not overlap. @throws STORAGE_FULL, STORAGE_FAILED */
export async function writeTokens(stateDirectory: string, tokens: TokenBook): Promise<void> {
  await writePrivateFile(join(authorityDirectory(stateDirectory), AUTHORITY_FILES.tokens), textOf(tokens));
}

function textOf(tokens: TokenBook): string {
  return `${JSON.stringify(tokens)}\n`;
}
