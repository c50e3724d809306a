/** The join tokens that main has given out. Pure: each function gives the next book, which main writes to the disk before it acts on it. */
import { timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { IDENTIFIER_RULE, isIdentifier } from '../../shared/base/text/identifier.js';
import { formatDuration } from '../../shared/base/text/units.js';
import { makeJoinToken, joinTokenText, secretDigest } from './join-token.js';
import { PEER_ROLES, type PeerRole } from '../../shared/transport/trust/peer-role.js';
import type { Refusal } from '../../shared/transport/trust/refusal.js';
import { minuteOf, type Roster } from './roster.js';
import type { Chance } from './secret-bytes.js';

/** A token as main keeps it: everything but the secret. */
export interface StoredToken {
  readonly id: string;
  /** SHA-256 of the secret, 64 digits of base 16. */
  readonly secretDigest: string;
  /** The role that a peer gets by it. */
  readonly role: PeerRole;
  /** The id that a peer must have that joins by it; null: any. */
  readonly name: string | null;
  /** Peers that may still join by it; null: any number. */
  readonly usesLeft: number | null;
  /** Main's clock when it was made, in milliseconds since 1970. */
  readonly createdMs: number;
  /** Time since the system of main's host was started, when it was made, in milliseconds. */
  readonly createdUptimeMs: number;
  /** The start of main's host in which it was made. */
  readonly createdBootId: string;
  readonly lifeMs: number;
  readonly revokedMs: number | null;
  /** Ids of the peers that joined by it, the last one last; of a token for any number, the last TOKEN_USES_LIMIT. */
  readonly usedBy: readonly string[];
}

export interface TokenBook {
  readonly tokens: readonly StoredToken[];
}

/** Main's clocks. */
export interface TokenClock {
  /** Milliseconds since 1970. */
  readonly nowMs: number;
  /** Milliseconds since the system was started. */
  readonly uptimeMs: number;
  /** Name of this start of the system. */
  readonly bootId: string;
  /** True: `nowMs` is before a time that is on the disk (isClockSetBack). Tokens of this start of the system are then judged by its uptime. */
  readonly clockIsSetBack: boolean;
}

export type TokenState = 'valid' | 'used up' | 'expired' | 'revoked';

/** A token in a list. */
export interface TokenLine {
  readonly token: StoredToken;
  readonly state: TokenState;
  /** Milliseconds until it expires; null: it has, or nobody can say. */
  readonly leftMs: number | null;
}

export interface NewToken {
  readonly role: PeerRole;
  readonly name?: string;
  /** null: any number of peers, until it expires. */
  readonly uses: number | null;
  readonly lifeMs: number;
}

/** The message of a peer that joins. */
export interface TokenUse {
  readonly tokenId: string;
  readonly secret: string;
  readonly role: PeerRole;
  readonly id: string;
  /** True: the roster has a present peer of this role and id, with the key by which this one asks. */
  readonly isListed: boolean;
}

export const TOKENS_LIMIT = 128;
export const TOKEN_USES_LIMIT = 256;
export const TOKEN_LIFE_LIMIT_MS = 365 * 24 * 3_600_000;

export const EMPTY_TOKEN_BOOK: TokenBook = { tokens: [] };

const BOOT_ID_LIMIT = 64;
const TIME = z.number().min(0).max(8.64e15);
const DIGEST = z.string().regex(/^[0-9a-f]{64}$/);
const IDENTIFIER = z.string().refine(isIdentifier);
const tokenSchema = z.strictObject({
  id: z.string().regex(/^[a-z2-7]{8}$/),
  secretDigest: DIGEST,
  role: z.enum(PEER_ROLES),
  name: IDENTIFIER.nullable(),
  usesLeft: z.int().min(0).max(TOKEN_USES_LIMIT).nullable(),
  createdMs: TIME,
  createdUptimeMs: TIME,
  createdBootId: z.string().max(BOOT_ID_LIMIT),
  lifeMs: z.number().min(1).max(TOKEN_LIFE_LIMIT_MS),
  revokedMs: TIME.nullable(),
  usedBy: z.array(IDENTIFIER).max(TOKEN_USES_LIMIT),
});
const bookSchema = z.strictObject({ tokens: z.array(tokenSchema).max(TOKENS_LIMIT) });

/** A book from the disk; null: it is none. */
export function parseTokenBook(value: unknown): TokenBook | null {
  return bookSchema.safeParse(value).data ?? null;
}

/** True if main's clock shows a time before one at which something is known to have happened. */
export function isClockSetBack(nowMs: number, book: TokenBook, roster: Roster): boolean {
  const known = [
    ...book.tokens.map(({ createdMs }) => createdMs),
    ...roster.entries.flatMap(({ since, renewedAt, removed }) => [since, renewedAt ?? 0, removed ?? 0]),
  ];
  return known.some((timeMs) => nowMs < timeMs);
}

/** Makes a token. `text`: what the operator gets; main forgets it. Refused: values out of range, or too many tokens. */
export function createToken(
  book: TokenBook,
  wanted: NewToken,
  authorityDigest: string,
  clock: TokenClock,
  chance: Chance,
): { book: TokenBook; text: string; token: StoredToken } | Refusal {
  const { role, uses, lifeMs, name } = wanted;
  if (role === 'main') return { refusal: 'nobody joins as main: give the role worker, shadow or operator' };
  if (uses !== null && (!Number.isInteger(uses) || uses < 1 || uses > TOKEN_USES_LIMIT)) {
    return { refusal: `a token is for 1 to ${TOKEN_USES_LIMIT} machines` };
  }
  if (!(lifeMs >= 1000 && lifeMs <= TOKEN_LIFE_LIMIT_MS)) {
    return { refusal: `a token is good for a second to ${formatDuration(TOKEN_LIFE_LIMIT_MS)}` };
  }
  if (name !== undefined && !isIdentifier(name)) {
    return { refusal: `${JSON.stringify(name)} is no id: give ${IDENTIFIER_RULE}` };
  }
  const others = withRoom(book, clock);
  if (others === null) return { refusal: `${TOKENS_LIMIT} tokens are valid, the most there may be: revoke one first` };
  const made = makeJoinToken(authorityDigest, chance);
  const token: StoredToken = {
    id: made.id,
    secretDigest: secretDigest(made.secret),
    role,
    name: name ?? null,
    usesLeft: uses,
    createdMs: clock.nowMs,
    createdUptimeMs: clock.uptimeMs,
    createdBootId: clock.bootId,
    lifeMs,
    revokedMs: null,
    usedBy: [],
  };
  return { book: { tokens: [...others, token] }, text: joinTokenText(made), token };
}

/** Every token that main remembers, in the order in which they were made. */
export function listTokens(book: TokenBook, clock: TokenClock): TokenLine[] {
  return book.tokens.map((token) => {
    const leftMs = token.lifeMs - ageMs(token, clock);
    return { token, state: stateOf(token, clock), leftMs: leftMs > 0 ? leftMs : null };
  });
}

/** Ends a token. Those that have joined by it stay. Revoking again changes nothing. Refused: there is no such token. */
export function revokeToken(book: TokenBook, id: string, nowMs: number): TokenBook | Refusal {
  if (!book.tokens.some((token) => token.id === id)) {
    return { refusal: `there is no token ${JSON.stringify(id)}: odmoe token list shows those that there are` };
  }
  return {
    tokens: book.tokens.map((token) => (token.id === id ? { ...token, revokedMs: token.revokedMs ?? nowMs } : token)),
  };
}

/**
 * Counts a use of a token. Main writes the book to the disk before it certifies the peer. A peer that has joined by the token and is still listed with
 * its key may use it again for free, as main's reply may have been lost; one that was removed since may not.
 * Refused: each of unknown, wrong secret, revoked, expired, of another role or id, and used up has its own words.
 */
export function useToken(
  book: TokenBook,
  use: TokenUse,
  clock: TokenClock,
): { book: TokenBook; token: StoredToken } | Refusal {
  const token = book.tokens.find(({ id }) => id === use.tokenId);
  // The comparison is made for unknown tokens, too, so that the time of an answer tells nothing.
  const isRight = isSecretOf(use.secret, token);
  if (token === undefined)
    return refused(use, 'is not known to this main', 'it may be of another cluster, or an old one');
  if (!isRight) return refused(use, 'has another secret', 'copy the whole of it again');
  const why = reasonAgainst(token, use, clock);
  if (why !== null) return why;
  if (use.isListed && token.usedBy.includes(use.id)) return { book, token };
  if (token.usesLeft === 0) {
    const who = token.role === 'operator' ? 'operators' : 'machines';
    return refused(use, `is used up: as many ${who} have joined by it as it was made for`, newToken(use.role, use));
  }
  const usesLeft = token.usesLeft === null ? null : token.usesLeft - 1;
  const usedBy = [...token.usedBy.filter((id) => id !== use.id), use.id].slice(-TOKEN_USES_LIMIT);
  const used: StoredToken = { ...token, usesLeft, usedBy };
  return { book: { tokens: book.tokens.map((each) => (each === token ? used : each)) }, token: used };
}

function newToken(role: PeerRole, { id }: TokenUse): string {
  return `have a new one made on main, by odmoe ${role === 'operator' ? `operator add ${id}` : 'token create'}`;
}

function reasonAgainst(token: StoredToken, use: TokenUse, clock: TokenClock): Refusal | null {
  const another = newToken(use.role, use);
  if (token.revokedMs !== null) return refused(use, `was revoked on main (${minuteOf(token.revokedMs)})`, another);
  const age = ageMs(token, clock);
  if (age === Infinity) {
    return refused(
      use,
      "cannot be judged: main's clock was set back, and main's host was started again since",
      another,
    );
  }
  if (age > token.lifeMs) {
    return refused(use, `expired ${formatDuration(age - token.lifeMs)} ago, by main's clock`, another);
  }
  if (token.role !== use.role) return refused(use, `is for the role ${token.role}, and not for ${use.role}`, another);
  if (token.name !== null && token.name !== use.id) {
    const who = token.role === 'operator' ? 'operator' : 'machine';
    return refused(use, `is for the ${who} ${token.name}, and not for ${use.id}`, `give --id ${token.name}`);
  }
  return null;
}

function refused({ tokenId }: TokenUse, what: string, advice: string): Refusal {
  return { refusal: `the join token ${tokenId.slice(0, 8)} ${what}: ${advice}` };
}

const NO_SECRET = '0'.repeat(64);

function isSecretOf(secret: string, token: StoredToken | undefined): boolean {
  const expected = Buffer.from(token?.secretDigest ?? NO_SECRET, 'hex');
  return timingSafeEqual(Buffer.from(secretDigest(secret), 'hex'), expected);
}

function stateOf(token: StoredToken, clock: TokenClock): TokenState {
  if (token.revokedMs !== null) return 'revoked';
  if (ageMs(token, clock) > token.lifeMs) return 'expired';
  return token.usesLeft === 0 ? 'used up' : 'valid';
}

/** Infinity: the clock was set back, and the system was started again after the token was made; nothing is left to judge by. */
function ageMs(token: StoredToken, { nowMs, uptimeMs, bootId, clockIsSetBack }: TokenClock): number {
  if (!clockIsSetBack) return nowMs - token.createdMs;
  return bootId === token.createdBootId ? uptimeMs - token.createdUptimeMs : Infinity;
}

/** The tokens with room for one more; of too many, the oldest is forgotten that is not valid. Null: all are valid. */
function withRoom({ tokens }: TokenBook, clock: TokenClock): readonly StoredToken[] | null {
  if (tokens.length < TOKENS_LIMIT) return tokens;
  const over = tokens.find((token) => stateOf(token, clock) !== 'valid');
  return over === undefined ? null : tokens.filter((token) => token !== over);
}
