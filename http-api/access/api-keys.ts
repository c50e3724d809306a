import { createHash, timingSafeEqual } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { join } from 'node:path';
import { makePrivateDirectory, writePrivateFile } from '../../engine/trust/key-files.js';
import { randomApiKey } from '../../engine/trust/random-api-key.js';
import type { Chance } from '../../engine/trust/secret-bytes.js';
import { KEYS_VARIABLE } from '../../shared/settings/api-keys.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';

export const KEYS_FILE_LIMIT_BYTES = 1024 * 1024;
/** Characters of a key. */
export const KEY_LENGTH_RANGE = { least: 8, most: 512 } as const;
export const KEYS_LIMIT = 1024;
/** Bytes of a key's digest that make the client's name. */
const CLIENT_NAME_BYTES = 6;

/** The rights of a key: a client may ask, and an operator may also let machines into the cluster and remove them. */
export type KeyRole = 'client' | 'operator';

export interface ApiKey {
  readonly text: string;
  readonly role: KeyRole;
}

/** The owner of a key that main knows. */
export interface KeyOwner {
  /** An opaque name; main shares itself fairly among these names. Empty if no keys are configured. */
  readonly client: string;
  readonly role: KeyRole;
}

/** Everybody, where no keys are configured. */
const ANYBODY: KeyOwner = { client: '', role: 'client' };

/** The keys that admit a request. Only their hashes are stored. Without any key, every request is admitted, and nobody is an operator. */
export class ApiKeys {
  /** By hash, hexadecimal. */
  private readonly owners = new Map<string, KeyOwner & { readonly digest: Buffer }>();

  /** The same key may come twice with one role. */
  constructor(keys: readonly ApiKey[]) {
    for (const { text, role } of keys) {
      const digest = digestOf(text);
      const client = digest.toString('hex', 0, CLIENT_NAME_BYTES);
      this.owners.set(digest.toString('hex'), { digest, client, role });
    }
  }

  get count(): number {
    return this.owners.size;
  }

  get hasOperator(): boolean {
    return [...this.owners.values()].some(({ role }) => role === 'operator');
  }

  /** Null: main does not know the key, or none came and main has some. Takes the same time for a wrong key as for any right key. */
  ownerOf(key: string | null): KeyOwner | null {
    if (this.count === 0) return ANYBODY;
    const given = digestOf(key ?? '');
    let found: KeyOwner | null = null;
    for (const { digest, client, role } of this.owners.values()) {
      found = timingSafeEqual(digest, given) ? { client, role } : found;
    }
    return key === null ? null : found;
  }
}

function digestOf(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

/** The key that a request brings: `Authorization: Bearer KEY` or `x-api-key: KEY`; null: none. */
export function keyOf(headers: IncomingHttpHeaders): string | null {
  const bearer = /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
  if (bearer !== undefined) return bearer;
  const named = headers['x-api-key'];
  return typeof named === 'string' && named !== '' ? named : null;
}

/** Main's own key: where it is kept, and its text. */
export interface OwnKey {
  readonly path: string;
  readonly text: string;
}

/**
 * The key that main has made for itself, with the role of an operator; it is made the first time. `directory`: main's state directory.
 * @throws CONFIG_INVALID, STORAGE_FULL, STORAGE_FAILED
 */
export async function ownKey(directory: string, chance: Chance, log: Pick<Logger, 'warn'>): Promise<OwnKey> {
  const path = join(directory, 'api-keys');
  if (!(await fileExists(path))) {
    await makePrivateDirectory(directory);
    await writePrivateFile(path, `${randomApiKey(chance)} role: operator\n`);
  }
  const [first] = parseKeys(await readKeyLines(path, log), path);
  if (first === undefined) throw invalid(`${path} holds no key: remove the file, and main makes a new one`);
  return { path, text: first.text };
}

/**
 * Reads keys from the file (one a line; blank lines and lines that begin with # are skipped) and from ODMOE_API_KEYS (separated by commas). An
 * entry is a key, or a key with "role: operator" behind it.
 * @throws CONFIG_INVALID, without the keys
 */
export async function readApiKeys(
  path: string | null,
  variables: NodeJS.ProcessEnv,
  log: Pick<Logger, 'warn'>,
): Promise<ApiKeys> {
  const keys = parseKeys((variables[KEYS_VARIABLE] ?? '').split(','), KEYS_VARIABLE);
  if (path !== null) keys.push(...parseKeys(await readKeyLines(path, log), path));
  if (keys.length > KEYS_LIMIT) throw invalid(`there are ${keys.length} API keys; at most ${KEYS_LIMIT} are taken`);
  refuseTwoRoles(keys);
  return new ApiKeys(keys);
}

/** A key with and without the operator's role: nobody can say which of the two was meant. */
function refuseTwoRoles(keys: readonly ApiKey[]): void {
  const operators = new Set(keys.filter(({ role }) => role === 'operator').map(({ text }) => text));
  if (keys.every(({ text, role }) => role === 'operator' || !operators.has(text))) return;
  throw invalid('an API key stands twice, once with "role: operator" and once without: keep one of both');
}

async function readKeyLines(path: string, log: Pick<Logger, 'warn'>): Promise<string[]> {
  try {
    const found = await stat(path);
    const { size, mode } = found;
    // A read of a pipe or a device may never end.
    if (!found.isFile()) throw invalid('it is no regular file');
    if (size > KEYS_FILE_LIMIT_BYTES) throw invalid(`it has ${size} bytes; at most ${KEYS_FILE_LIMIT_BYTES} are read`);
    if ((mode & 0o007) !== 0) {
      log.warn('everybody on this machine can read the API keys; take that right away (chmod o-rwx)', { path });
    }
    const lines = (await readFile(path, 'utf8')).split(/\r?\n/).map((line) => (/^\s*#/.test(line) ? '' : line));
    if (lines.every((line) => line.trim() === '')) throw invalid('it holds no key; write one a line');
    return lines;
  } catch (thrown) {
    throw invalid(`cannot use the file of API keys ${path}: ${toOdmoeError(thrown).message}`);
  }
}

/** "KEY", or "KEY role: ROLE". */
const ENTRY_FORM = /^(?!role:)([\x21-\x7e]+)(?:\s+role:\s*(\S*))?$/;

/** `source`: the origin of the keys, for messages. A message names an entry by its number, never by its text. */
function parseKeys(entries: readonly string[], source: string): ApiKey[] {
  const { least, most } = KEY_LENGTH_RANGE;
  return entries.flatMap((entry, index) => {
    const written = entry.trim();
    if (written === '') return [];
    const [, text = '', role] = ENTRY_FORM.exec(written) ?? [];
    const name = `${source}: API key number ${index + 1}`;
    if (text.length < least || text.length > most) {
      throw invalid(`${name} must have ${least} to ${most} printable ASCII characters without spaces`);
    }
    if (role !== undefined && role !== 'operator') {
      throw invalid(`${name} has a role that there is not: write "role: operator" behind it, or nothing`);
    }
    return [{ text, role: role ?? 'client' }];
  });
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('CONFIG_INVALID', message);
}
