/**
 * The text of a join token: odmoe1-DIGEST-ID-SECRET-CHECK. It has no character at which a double click would stop but "-", and its begin is one
 * that programs which look for secrets can know. The digest is that of the authority, so that its holder knows main before it sends the secret.
 */
import { createHash } from 'node:crypto';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { fromBase32, toBase32 } from './base32.js';
import { secretBytes, type Chance } from './secret-bytes.js';

/** The parts of a token. */
export interface JoinToken {
  /** Digest of the authority's certificate, 64 digits of base 16 (authorityDigest). */
  readonly authorityDigest: string;
  /** Names the token in lists. It is no secret. */
  readonly id: string;
  readonly secret: string;
}

const VERSION = 'odmoe1';
const ID_BYTES = 5;
const SECRET_BYTES = 16;
/** Characters of each part: digest, id, secret, check. */
const PART_LENGTHS = [52, 8, 26, 4] as const;
const TOKEN_LENGTH = PART_LENGTHS.reduce((sum, length) => sum + 1 + length, VERSION.length);

/** A new token. Its id and secret are random. */
export function makeJoinToken(authorityDigest: string, chance: Chance): JoinToken {
  return {
    authorityDigest,
    id: toBase32(secretBytes(chance, ID_BYTES)),
    secret: toBase32(secretBytes(chance, SECRET_BYTES)),
  };
}

/** The text that the operator carries to the joining machine. */
export function joinTokenText({ authorityDigest, id, secret }: JoinToken): string {
  const text = [VERSION, toBase32(Buffer.from(authorityDigest, 'hex')), id, secret].join('-');
  return `${text}-${checkOf(text)}`;
}

/** Reads a token as it was typed, pasted or read from a file. Refused: what is none, with the way in which it is not. */
export function readJoinToken(typed: string): JoinToken | Refusal {
  const text = typed.trim().toLowerCase();
  const [version = '', digest = '', id = '', secret = '', check = '', ...others] = text.split('-');
  if (!/^odmoe\d+$/.test(version)) {
    return refused('is no join token of odmoe, which begins with "odmoe1-"', 'give the whole of what main printed');
  }
  if (version !== VERSION) {
    return refused(
      `is of another version of odmoe (${version})`,
      'have one made by a main of the same version as this',
    );
  }
  const lengths = [digest, id, secret, check].map((part) => part.length);
  if (text.length < TOKEN_LENGTH && PART_LENGTHS.some((length, index) => (lengths[index] ?? 0) < length)) {
    const found = `${text.length} of ${TOKEN_LENGTH} characters`;
    return refused(`is cut short (${found})`, 'copy the whole of it');
  }
  if (text.length > TOKEN_LENGTH) {
    return refused(`is too long (${text.length} characters in place of ${TOKEN_LENGTH})`, 'give one token alone');
  }
  const isWhole = others.length === 0 && PART_LENGTHS.every((length, index) => lengths[index] === length);
  const authority = fromBase32(digest);
  const isSpelt = authority !== null && fromBase32(id) !== null && fromBase32(secret) !== null;
  if (!isWhole || !isSpelt || check !== checkOf(text.slice(0, -check.length - 1))) {
    return refused('is mistyped', 'copy it again, or type it once more: letters a to z and digits 2 to 7');
  }
  return { authorityDigest: authority.toString('hex'), id, secret };
}

/** As readJoinToken. Throws JOIN_TOKEN_INVALID. */
export function requireJoinToken(typed: string): JoinToken {
  const read = readJoinToken(typed);
  if (isRefusal(read)) throw new OdmoeError('JOIN_TOKEN_INVALID', read.refusal);
  return read;
}

function refused(what: string, advice: string): Refusal {
  return { refusal: `the join token ${what}: ${advice}` };
}

/** The only trace of a secret that main keeps: its SHA-256, 64 digits of base 16. */
export function secretDigest(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

/** 20 bits of a digest: a wrong character goes unnoticed once in a million times. */
function checkOf(text: string): string {
  return toBase32(createHash('sha256').update(text).digest()).slice(0, PART_LENGTHS[3]);
}
