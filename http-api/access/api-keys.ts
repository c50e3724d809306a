import { createHash, timingSafeEqual } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import type { IncomingHttpHeaders } from 'node:http';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';

export const KEYS_FILE_LIMIT_BYTES = 1024 * 1024;
/** Characters of a key. */
export const KEY_LENGTH_RANGE = { least: 8, most: 512 } as const;
export const KEYS_LIMIT = 1024;
/** Bytes of a key's digest that make the client's name. */
const CLIENT_NAME_BYTES = 6;
const KEYS_VARIABLE = 'ODMOE_API_KEYS';

/** The keys that admit a request. Only their hashes are stored. Without any key, every request is admitted. */
export class ApiKeys {
  private readonly digests: readonly Buffer[];

  constructor(keys: readonly string[]) {
    this.digests = [...new Set(keys)].map(digestOf);
  }

  get count(): number {
    return this.digests.length;
  }

  /** An opaque name of the key's owner; main shares itself fairly among these names. Empty if no keys are configured or the request has none. */
  clientOf(key: string | null): string {
    return this.count === 0 || key === null ? '' : digestOf(key).toString('hex', 0, CLIENT_NAME_BYTES);
  }

  /** Takes the same time for a wrong key as for any right key. */
  admits(key: string | null): boolean {
    if (this.count === 0) return true;
    const given = digestOf(key ?? '');
    let found = false;
    for (const digest of this.digests) found = timingSafeEqual(digest, given) || found;
    return found && key !== null;
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

/**
 * Reads keys from the file (one a line; blank lines and lines that begin with # are skipped) and from ODMOE_API_KEYS (separated by commas).
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
  return new ApiKeys(keys);
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

/** `source`: the origin of the keys, for messages. A message names an entry by its number, never by its text. */
function parseKeys(entries: readonly string[], source: string): string[] {
  const { least, most } = KEY_LENGTH_RANGE;
  return entries.flatMap((entry, index) => {
    const key = entry.trim();
    if (key === '') return [];
    if (/^[\x21-\x7e]+$/.test(key) && key.length >= least && key.length <= most) return [key];
    throw invalid(
      `${source}: API key number ${index + 1} must have ${least} to ${most} printable ASCII characters without spaces`,
    );
  });
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('CONFIG_INVALID', message);
}
