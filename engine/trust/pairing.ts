/**
 * Pairing: a machine that wants in shows a code of six digits, and the operator types it at main. The machine commits itself to a nonce, then main
 * tells its own, then the machine reveals: so whoever stands between has one guess in a million, and no second one without another code on a screen.
 */
import { createHash, type KeyObject } from 'node:crypto';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { formatDuration } from '../../shared/base/text/units.js';
import { IDENTIFIER_RULE, isIdentifier } from '../../shared/base/text/identifier.js';
import { readPublicKey } from '../../shared/transport/trust/certificate.js';
import { EXPORTER_BYTES, isKeyProof } from './key-proof.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { ENROLMENT_REQUEST_MS, ENROLMENT_RETRIES_LIMIT, ENROLMENT_RETRY_PAUSE_MS } from '../../shared/wire/limits.js';
import { secretBytes, type Chance } from './secret-bytes.js';

export const PAIRING_NONCE_BYTES = 32;
export const PAIRINGS_LIMIT = 16;
/** Most machines of one address that wait, so that a stranger leaves places for others. */
export const PAIRINGS_OF_ADDRESS_LIMIT = 8;
export const PAIRING_LIFE_MS = 10 * 60_000;
/** A machine that waits on no connection for so long has gone: one that lost its connection tries no longer to come back. */
export const PAIRING_ABSENCE_MS = ENROLMENT_RETRIES_LIMIT * ENROLMENT_RETRY_PAUSE_MS;
/** Time in which a machine reveals its nonce: it does so at once, and until then it takes a place and is shown to nobody. */
export const PAIRING_REVEAL_MS = ENROLMENT_REQUEST_MS;
export const WRONG_CODES_LIMIT = 3;
/** Most codes that main remembers after they have let a machine in. */
export const ACCEPTED_CODES_LIMIT = 16;
/** Most codes that a machine shows by itself in PAIRING_LIFE_MS. */
export const CODES_SHOWN_LIMIT = 3;
/** One new machine in this time and from one address. */
export const PAIRING_PAUSE_MS = 1000;
/**
 * Most beginnings in PAIRING_LIFE_MS, of machines that have gone, too. Whoever stands between sees its code before the operator does, and could
 * begin again until it is the one on the machine's screen.
 */
export const BEGINNINGS_LIMIT = 64;
/** Most of them from one address. */
export const BEGINNINGS_OF_ADDRESS_LIMIT = 16;
/** Beginnings that an address has also when others have used BEGINNINGS_LIMIT up, and the most with those: a few addresses shut nobody out. */
export const BEGINNINGS_RESERVED_FOR_ADDRESS = 2;
export const BEGINNINGS_WITH_RESERVED_LIMIT = 128;

const PURPOSE = 'odmoe pair 1';
const CODES = 1_000_000;
const CODE_DIGITS = 6;
const PAIRING_ID_BYTES = 16;
/** Longest text about a machine that main keeps, in characters. */
const DEVICE_LIMIT = 100;

/** The first message: a machine wants in. */
export interface PairingRequest {
  /** pairingCommitment of the nonce and the key that the machine will reveal. */
  readonly commitment: Buffer;
  readonly id: string;
  readonly role: PeerRole;
  /** The machine's own words about its device, for the operator. */
  readonly device: string;
  /** The network address that the request comes from. */
  readonly address: string;
  /**
   * The export of the connection that carries this message. The reveal must come on the same one: whoever stands between and knows a machine's code
   * could otherwise open connections at main until one gives the same code.
   */
  readonly exporter: Buffer;
}

/** The second message. */
export interface PairingReveal {
  readonly nonce: Buffer;
  /** The machine's public key (SPKI, DER). */
  readonly spki: Buffer;
  /** proveKey by that key, on the connection that carries this message. */
  readonly proof: Buffer;
  /** The export of that connection. */
  readonly exporter: Buffer;
}

/** A machine that waits. */
export interface Pairing {
  readonly pairingId: string;
  readonly request: PairingRequest;
  readonly mainNonce: Buffer;
  /** On a clock that never goes back, in milliseconds. */
  readonly begunMs: number;
  /** The time at which its last wait ended; null: it waits, or has not begun to. */
  readonly absentSinceMs: number | null;
  /** Null until the machine has revealed its nonce: it shows no code yet. */
  readonly revealed: { readonly publicKey: KeyObject; readonly nonce: Buffer; readonly code: string } | null;
}

/** The machines that wait at main. It is in memory alone: when main starts again, they begin again. */
export interface PairingBook {
  readonly pairings: readonly Pairing[];
  readonly wrongCodes: number;
  /** Beginnings of the last PAIRING_LIFE_MS. */
  readonly begun: readonly { readonly address: string; readonly begunMs: number }[];
  /** Codes of the last PAIRING_LIFE_MS that let a machine in, the newest one last: an operator may type one twice. */
  readonly accepted: readonly AcceptedCode[];
}

interface AcceptedCode {
  readonly code: string;
  readonly id: string;
  readonly acceptedMs: number;
}

/** All that a code depends on. */
export interface PairingCodeParts {
  readonly commitment: Buffer;
  readonly mainNonce: Buffer;
  readonly nonce: Buffer;
  /** Digest of the authority that main shows, 64 digits of base 16. */
  readonly authorityDigest: string;
  readonly spki: Buffer;
  readonly exporter: Buffer;
}

export const EMPTY_PAIRING_BOOK: PairingBook = { pairings: [], wrongCodes: 0, begun: [], accepted: [] };

/** The machine's commitment: SHA-256 of the purpose, its nonce and its public key (SPKI, DER). */
export function pairingCommitment(nonce: Buffer, spki: Buffer): Buffer {
  return createHash('sha256').update(PURPOSE).update(nonce).update(spki).digest();
}

/** The code, six digits. Main and machine compute the same one unless somebody stands between. */
export function pairingCode(parts: PairingCodeParts): string {
  const { commitment, mainNonce, nonce, authorityDigest, spki, exporter } = parts;
  const digest = createHash('sha256')
    .update(commitment)
    .update(mainNonce)
    .update(nonce)
    .update(Buffer.from(authorityDigest, 'hex'))
    .update(spki)
    .update(exporter)
    .digest();
  return String(digest.readUIntBE(0, 6) % CODES).padStart(CODE_DIGITS, '0');
}

/** "482 913" */
export function shownCode(code: string): string {
  return `${code.slice(0, 3)} ${code.slice(3)}`;
}

/** Six digits as a person types them, with spaces or a dash between; null: something else. */
export function typedCode(text: string): string | null {
  const digits = text.replace(/[\s-]/g, '');
  return /^\d{6}$/.test(digits) ? digits : null;
}

/**
 * Takes a machine in that wants to wait. A machine that begins again takes the place of its older request. Refused: too many wait, or too fast.
 * @param nowMs a clock that never goes back
 */
export function beginPairing(
  book: PairingBook,
  request: PairingRequest,
  nowMs: number,
  chance: Chance,
): { book: PairingBook; pairing: Pairing } | Refusal {
  const present = withoutOld(book, nowMs);
  const why = reasonAgainst(present, request, nowMs);
  if (why !== null) return { refusal: why };
  const others = present.pairings.filter((each) => !isSameMachine(each.request, request));
  const { address } = request;
  if (others.filter((each) => each.request.address === address).length >= PAIRINGS_OF_ADDRESS_LIMIT) {
    return {
      refusal: `${PAIRINGS_OF_ADDRESS_LIMIT} machines of ${address} wait at main already: ${WAYS_PAST_OTHERS}`,
    };
  }
  if (others.length >= PAIRINGS_LIMIT) {
    return { refusal: `${PAIRINGS_LIMIT} machines wait at main already: ${WAYS_PAST_OTHERS}` };
  }
  const pairing: Pairing = {
    pairingId: secretBytes(chance, PAIRING_ID_BYTES).toString('hex'),
    request: { ...request, device: request.device.slice(0, DEVICE_LIMIT) },
    mainNonce: secretBytes(chance, PAIRING_NONCE_BYTES),
    begunMs: nowMs,
    absentSinceMs: null,
    revealed: null,
  };
  const begun = [...present.begun, { address: request.address, begunMs: nowMs }];
  return { book: { ...present, pairings: [...others, pairing], begun }, pairing };
}

function reasonAgainst({ begun }: PairingBook, request: PairingRequest, nowMs: number): string | null {
  if (!isIdentifier(request.id)) return `the id that asks is none: give --id with ${IDENTIFIER_RULE}`;
  if (request.role === 'main') return 'nobody joins as main: pair as worker or shadow';
  if (request.role === 'operator') return 'operators join by a token: odmoe operator add on main makes one';
  assertInvariant(
    request.exporter.length === EXPORTER_BYTES,
    'A machine begins on a connection that exports too little.',
  );
  if (request.commitment.length !== 32) return 'the commitment is not a SHA-256: use odmoe of the same version';
  if (isTooSoon({ begun }, request, nowMs))
    return `one machine a second may ask from ${request.address}: try again in a second`;
  const ofAddress = begun.filter(({ address }) => address === request.address).length;
  if (ofAddress >= BEGINNINGS_OF_ADDRESS_LIMIT) {
    return `${request.address} has asked ${BEGINNINGS_OF_ADDRESS_LIMIT} times in ${LIFE}: try again later, or join by a token`;
  }
  const limit = ofAddress < BEGINNINGS_RESERVED_FOR_ADDRESS ? BEGINNINGS_WITH_RESERVED_LIMIT : BEGINNINGS_LIMIT;
  if (begun.length < limit) return null;
  return `${begun.length} machines have asked in ${LIFE}, the most there may be: try again later, or join by a token`;
}

/** True if a machine of the same address began less than a second ago: then this one is to begin again a little later. */
export function isTooSoon(
  { begun }: Pick<PairingBook, 'begun'>,
  { address }: Pick<PairingRequest, 'address'>,
  nowMs: number,
): boolean {
  return begun.some((each) => each.address === address && nowMs - each.begunMs < PAIRING_PAUSE_MS);
}

const LIFE = formatDuration(PAIRING_LIFE_MS);

/** Those that wait may be a stranger's, so nobody is told to accept them. A token needs no place. */
const WAYS_PAST_OTHERS = `join by a token (odmoe token create on main), which waits for none of them, or try again in ${LIFE}; accept only a machine whose code you have read on its screen`;

/** For a machine that main does not know (any more). */
export const WAITS_NO_MORE =
  `this machine waits no more at main (it waited longer than ${LIFE}, wrong codes were typed, its connection was lost, or main was started again): ` +
  'start it again for a new code';

/** Time until a machine may show another code by itself; 0: it may now. `shownMs`: when it showed codes, the oldest first, on the clock of `nowMs`. */
export function anotherCodePauseMs(shownMs: readonly number[], nowMs: number): number {
  const [first = -Infinity] = shownMs.length < CODES_SHOWN_LIMIT ? [] : shownMs.slice(-CODES_SHOWN_LIMIT);
  return Math.max(0, first + PAIRING_LIFE_MS - nowMs);
}

/** True: the machine has revealed nothing in time, or nobody has typed its code in time. */
export function isPairingOver({ begunMs, revealed }: Pairing, nowMs: number): boolean {
  return nowMs - begunMs >= (revealed === null ? PAIRING_REVEAL_MS : PAIRING_LIFE_MS);
}

/** True: the machine has gone without a word. */
export function isAbsent({ absentSinceMs }: Pairing, nowMs: number): boolean {
  return absentSinceMs !== null && nowMs - absentSinceMs >= PAIRING_ABSENCE_MS;
}

/** The machine waits from now on (null), or has not waited since that time. */
export function withAbsence(book: PairingBook, pairingId: string, absentSinceMs: number | null): PairingBook {
  const pairings = book.pairings.map((each) => (each.pairingId === pairingId ? { ...each, absentSinceMs } : each));
  return { ...book, pairings };
}

/** The same process asks again, or one that took its place. */
function isSameMachine(one: PairingRequest, other: PairingRequest): boolean {
  return one.id === other.id && one.role === other.role && one.address === other.address;
}

/** The machine reveals its nonce and its key; from now on its code can be accepted. The same again changes nothing. Refused: it does not fit. */
export function revealPairing(
  book: PairingBook,
  pairingId: string,
  reveal: PairingReveal,
  authorityDigest: string,
  nowMs: number,
): { book: PairingBook; pairing: Pairing } | Refusal {
  const present = withoutOld(book, nowMs);
  const pairing = present.pairings.find((each) => each.pairingId === pairingId);
  if (pairing === undefined) return { refusal: WAITS_NO_MORE };
  const { request, mainNonce } = pairing;
  const { nonce, spki, exporter, proof } = reveal;
  const isCommitted = pairingCommitment(nonce, spki).equals(request.commitment);
  if (nonce.length !== PAIRING_NONCE_BYTES || !isCommitted) {
    return { refusal: 'the machine has revealed something else than it committed itself to: do not go on' };
  }
  const publicKey = readPublicKey(spki);
  if (isRefusal(publicKey)) return publicKey;
  if (!exporter.equals(request.exporter)) {
    return { refusal: 'the machine must reveal its nonce on the connection on which it began: start it again' };
  }
  if (!isKeyProof(proof, publicKey, exporter, request.id)) {
    return { refusal: 'the machine does not hold the key that it shows, or somebody stands between: do not go on' };
  }
  const code = pairingCode({ commitment: request.commitment, mainNonce, nonce, authorityDigest, spki, exporter });
  const shown: Pairing = { ...pairing, revealed: { publicKey, nonce, code } };
  const pairings = present.pairings.map((each) => (each === pairing ? shown : each));
  return { book: { ...present, pairings }, pairing: shown };
}

/** The result of a code that was typed. The book is the next one in every case. */
export type Acceptance =
  | { readonly book: PairingBook; readonly pairing: Pairing }
  /** `isRepeated`: the code is good, and has let its machine in before. */
  | { readonly book: PairingBook; readonly refusal: string; readonly isRepeated?: true };

/**
 * The operator has typed a code. The machine that shows it waits no more. Three wrong codes send every machine away; one that has let a machine in
 * before is none of them.
 */
export function acceptPairing(book: PairingBook, typed: string, nowMs: number): Acceptance {
  const present = withoutOld(book, nowMs);
  const code = typedCode(typed);
  if (code === null) return { book: present, refusal: 'a code has six digits, as the machine shows them' };
  const [pairing, ...twins] = present.pairings.filter(({ revealed }) => revealed?.code === code);
  if (pairing === undefined) {
    const before = present.accepted.findLast((each) => each.code === code);
    if (before === undefined) return wrongCode(present, code);
    return { book: present, refusal: acceptedWords(before, nowMs), isRepeated: true };
  }
  if (twins.length > 0) {
    const others = present.pairings.filter(({ revealed }) => revealed?.code !== code);
    const shown = `${twins.length + 1} machines show the code ${shownCode(code)}`;
    return { book: { ...present, pairings: others }, refusal: `${shown}: start them again, one after the other` };
  }
  const { id } = pairing.request;
  const accepted = [...present.accepted, { code, id, acceptedMs: nowMs }].slice(-ACCEPTED_CODES_LIMIT);
  return { book: { ...withoutPairing(present, pairing.pairingId), wrongCodes: 0, accepted }, pairing };
}

function acceptedWords({ id, acceptedMs }: AcceptedCode, nowMs: number): string {
  const age = formatDuration(Math.ceil((nowMs - acceptedMs) / 1000) * 1000);
  return `${id} was let in by this code ${age} ago: there is nothing to do, and odmoe node list shows it`;
}

/** The book after a machine whose code was typed could not be let in after all. */
export function withoutAccepted(book: PairingBook, code: string): PairingBook {
  return { ...book, accepted: book.accepted.filter((each) => each.code !== code) };
}

function wrongCode(book: PairingBook, code: string): Acceptance {
  if (book.pairings.length === 0) {
    return { book, refusal: 'no machine waits: start odmoe worker on it, and look that it names this main' };
  }
  const wrongCodes = book.wrongCodes + 1;
  const what = `no machine with the code ${shownCode(code)} waits`;
  if (wrongCodes < WRONG_CODES_LIMIT) {
    const advice = 'if a machine shows it, something stands between you: do not go on';
    return { book: { ...book, wrongCodes }, refusal: `${what}; ${advice}` };
  }
  const away = `after ${WRONG_CODES_LIMIT} wrong codes every machine was sent away`;
  return { book: { ...book, wrongCodes: 0, pairings: [] }, refusal: `${what}, and ${away}: start them again` };
}

/** The book after the connection has ended on which a machine began. It reveals on that one alone, so without having done so it is gone. */
export function afterConnection(book: PairingBook, pairingId: string): PairingBook {
  const pairing = book.pairings.find((each) => each.pairingId === pairingId);
  return pairing?.revealed === null ? withoutPairing(book, pairingId) : book;
}

/** The book without a machine that has gone. */
export function withoutPairing(book: PairingBook, pairingId: string): PairingBook {
  return { ...book, pairings: book.pairings.filter((each) => each.pairingId !== pairingId) };
}

/** The machines that wait and show a code, the one that began first before the others. */
export function waitingPairings(book: PairingBook, nowMs: number): readonly Pairing[] {
  return withoutOld(book, nowMs).pairings.filter(({ revealed }) => revealed !== null);
}

/** The book without machines whose time is over, and without those that have gone. */
export function withoutOld(book: PairingBook, nowMs: number): PairingBook {
  return {
    ...book,
    pairings: book.pairings.filter((pairing) => !isPairingOver(pairing, nowMs) && !isAbsent(pairing, nowMs)),
    begun: book.begun.filter(({ begunMs }) => nowMs - begunMs < PAIRING_LIFE_MS),
    accepted: book.accepted.filter(({ acceptedMs }) => nowMs - acceptedMs < PAIRING_LIFE_MS),
  };
}
