/** Lets a machine join a cluster: by a token, or by a code that the operator types at main. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';
import { formatDuration } from '../../shared/base/text/units.js';
import {
  ENROLMENT_REQUEST_MS,
  ENROLMENT_RETRIES_LIMIT,
  ENROLMENT_RETRY_PAUSE_MS,
  ENROLMENT_WAIT_MS,
} from '../../shared/wire/limits.js';
import {
  authorityDigest,
  clusterOfAuthority,
  keyDigest,
  readPeerCertificate,
  spkiOf,
} from '../../shared/transport/trust/certificate.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { requireMainOf } from './ask-authority.js';
import { authorityWords } from './authority-words.js';
import { EnrolmentConnection, type EnrolmentContext, mayPass } from './enrolment-connection.js';
import {
  authorityReplySchema,
  ENROLMENT_PATHS,
  pairReplySchema,
  waitReplySchema,
  welcomeSchema,
  withdrawReplySchema,
  type joinRequestSchema,
  type pairRequestSchema,
  type revealRequestSchema,
  type Sent,
  type waitRequestSchema,
  type Welcome,
  type withdrawRequestSchema,
} from './enrolment-messages.js';
import { requireJoinToken } from './join-token.js';
import { proveKey } from './key-proof.js';
import {
  anotherCodePauseMs,
  CODES_SHOWN_LIMIT,
  PAIRING_LIFE_MS,
  PAIRING_NONCE_BYTES,
  pairingCode,
  pairingCommitment,
} from './pairing.js';
import { keysOf, presentEntry, readRoster } from './roster.js';
import { secretBytes } from './secret-bytes.js';

/** Longest time to tell main that this machine goes. A person waits for the end of the process. */
const WITHDRAWAL_LIMIT_MS = 1500;

/** A machine that wants in. */
export interface JoiningMachine {
  readonly id: string;
  readonly role: Exclude<PeerRole, 'main'>;
  /** Its private key. Who tries again uses the same one, so that a lost reply costs nothing. */
  readonly key: KeyObject;
}

/** The identity of a machine that has joined, as its files hold it. */
export interface JoinedCluster {
  readonly cluster: string;
  /** The authority's certificate, DER. */
  readonly authority: Buffer;
  /** The machine's certificate, DER. */
  readonly certificate: Buffer;
  /** The signed bytes of the newest roster. */
  readonly roster: Buffer;
  /** The authority in words, for people to compare. */
  readonly words: string;
}

/**
 * Joins by a token. The secret goes only to a main that has shown that the token's authority certified it. Throws JOIN_TOKEN_INVALID (used up,
 * expired, revoked, mistyped, cut short), TRUST_REFUSED (another authority, the id is taken), NO_MAIN, TIMEOUT, TLS_MISMATCH, CANCELLED.
 * @param address host:port of main
 * @param token the text that main printed
 */
export async function joinByToken(
  address: string,
  token: string,
  machine: JoiningMachine,
  context: EnrolmentContext,
): Promise<JoinedCluster> {
  const read = requireJoinToken(token);
  const show = async (connection: EnrolmentConnection): Promise<Buffer> => {
    const shown = await connection.ask(ENROLMENT_PATHS.authority, null, authorityReplySchema);
    return shown.authority;
  };
  const authority = await untilTaken(context, () => onConnection(address, null, context, show));
  const digest = authorityDigest(authority);
  if (digest !== read.authorityDigest || clusterOfAuthority(authority) === null) {
    const digests = `${digest.slice(0, 16)} in place of ${read.authorityDigest.slice(0, 16)}`;
    throw new OdmoeError(
      'TRUST_REFUSED',
      `main at ${address} shows another authority than the token names (${digests}): the token is of another cluster, or something stands between; nothing secret was sent`,
    );
  }
  const { id, role, key } = machine;
  const ask = async (connection: EnrolmentConnection): Promise<JoinedCluster> => {
    const message: Sent<typeof joinRequestSchema> = {
      tokenId: read.id,
      secret: read.secret,
      spki: spkiOf(createPublicKey(key)).toString('base64'),
      id,
      role,
      proof: proveKey(key, connection.exporter, id).toString('base64'),
    };
    return joined(await connection.ask(ENROLMENT_PATHS.join, message, welcomeSchema), authority, machine);
  };
  return untilTaken(context, () => onConnection(address, authority, context, ask));
}

/** Throws TRUST_REFUSED if the main that let the machine in is of another cluster than it was when it was found. */
export function requireSameCluster(
  joined: Pick<JoinedCluster, 'cluster'>,
  found: { address: string; cluster: string },
): void {
  if (joined.cluster === found.cluster) return;
  throw new OdmoeError(
    'TRUST_REFUSED',
    `main at ${found.address} was of "${found.cluster}" and is of "${joined.cluster}" now: try again`,
  );
}

/** A machine that pairs. */
export interface PairingMachine extends JoiningMachine {
  /** The machine's own words about its device, for the operator: at most 100 printable characters of ASCII. */
  readonly device: string;
}

/** Shows a code (six digits) and the authority in words. `isAnother`: main has forgotten the code before. */
export type ShowCode = (code: string, words: string, isAnother: boolean) => void;

/**
 * Joins by a code that the operator types at main. Throws JOIN_TOKEN_INVALID (wrong codes, nobody typed it in ten minutes), PAIRING_UNKNOWN (main has
 * forgotten too many codes), TRUST_REFUSED (too many wait, another authority, the id is taken), NO_MAIN, TIMEOUT, TLS_MISMATCH, CANCELLED (main has
 * been told then).
 * @param onCode called once, and again for each code that replaces one that main has forgotten; never for a machine whose key was let in before
 * @param shownMs the times of the codes that the machine has shown in earlier calls, on the runtime's clock; this call adds its own
 */
export async function pairWithMain(
  address: string,
  machine: PairingMachine,
  onCode: ShowCode,
  context: EnrolmentContext,
  shownMs: number[] = [],
): Promise<JoinedCluster> {
  for (let isAnother = false; ; isAnother = true) {
    const waiting = await beginToWait(address, machine, context);
    if ('welcome' in waiting) return joined(waiting.welcome, waiting.authority, machine);
    shownMs.push(context.runtime.nowMs());
    onCode(waiting.code, authorityWords(authorityDigest(waiting.authority)), isAnother);
    const welcome = await acceptanceOrLeave(address, waiting, context);
    if (welcome !== null) return joined(welcome, waiting.authority, machine);
    if (anotherCodePauseMs(shownMs, context.runtime.nowMs()) > 0) throw forgottenTooOften(address);
  }
}

/**
 * Begins until main takes the machine, and reveals once. Whoever stands between knows the code as soon as the machine has revealed: if it began again
 * by itself, he would refuse each code in silence until one is that of a machine of his own at main.
 */
async function beginToWait(
  address: string,
  machine: PairingMachine,
  context: EnrolmentContext,
): Promise<Waiting | LetIn> {
  let hasRevealed = false;
  const reveals = (): void => {
    hasRevealed = true;
  };
  const show = (connection: EnrolmentConnection): Promise<Waiting | LetIn> =>
    showKey(connection, address, machine, context, reveals);
  return untilTaken(
    context,
    () => onConnection(address, null, context, show),
    () => !hasRevealed,
  );
}

function forgottenTooOften(address: string): OdmoeError {
  return new OdmoeError(
    'PAIRING_UNKNOWN',
    `main at ${address} has forgotten ${CODES_SHOWN_LIMIT} codes of this machine within ${formatDuration(PAIRING_LIFE_MS)}: if it was not started again so often, something stands between; look at main, then start this again`,
  );
}

/** Asks again while main is busy with other machines, also with others of this host, and `mayAgain` says yes. */
async function untilTaken<Result>(
  context: EnrolmentContext,
  ask: () => Promise<Result>,
  mayAgain = (): boolean => true,
): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await ask();
    } catch (thrown) {
      const isBusy = thrown instanceof OdmoeError && thrown.code === 'QUEUE_FULL';
      if (!isBusy || tries > ENROLMENT_RETRIES_LIMIT || !mayAgain()) throw thrown;
      await context.runtime.sleep(ENROLMENT_RETRY_PAUSE_MS, context.signal);
    }
  }
}

interface Waiting {
  readonly pairingId: string;
  readonly authority: Buffer;
  readonly code: string;
}

/** The key of the machine is in the cluster already: main's reply was lost, or could not be stored here. */
interface LetIn {
  readonly authority: Buffer;
  readonly welcome: Welcome;
}

/** Commits to a nonce, gets main's, and reveals, all on one connection. `reveals`: called before anything is revealed. */
async function showKey(
  connection: EnrolmentConnection,
  address: string,
  { id, role, key, device }: PairingMachine,
  { runtime }: EnrolmentContext,
  reveals: () => void,
): Promise<Waiting | LetIn> {
  const nonce = secretBytes(runtime, PAIRING_NONCE_BYTES);
  const spki = spkiOf(createPublicKey(key));
  const commitment = pairingCommitment(nonce, spki);
  const { exporter } = connection;
  const begin: Sent<typeof pairRequestSchema> = { commitment: commitment.toString('base64'), id, role, device };
  const begun = await connection.ask(ENROLMENT_PATHS.pair, begin, pairReplySchema);
  const { pairingId, authority } = begun;
  requireMainOf(authority, connection.serverCertificate, address);
  const reveal: Sent<typeof revealRequestSchema> = {
    pairingId,
    nonce: nonce.toString('base64'),
    spki: spki.toString('base64'),
    proof: proveKey(key, exporter, id).toString('base64'),
  };
  reveals();
  const reply = await connection.ask(ENROLMENT_PATHS.reveal, reveal, waitReplySchema);
  if (reply.state === 'joined') return { authority, welcome: reply };
  const parts = { commitment, mainNonce: begun.nonce, nonce, authorityDigest: authorityDigest(authority), spki };
  return { pairingId, authority, code: pairingCode({ ...parts, exporter }) };
}

/** Waits until the operator has typed the code. Null: main knows nothing of it, as it was started again. */
async function acceptance(address: string, waiting: Waiting, context: EnrolmentContext): Promise<Welcome | null> {
  const message: Sent<typeof waitRequestSchema> = { pairingId: waiting.pairingId };
  const limitMs = PAIRING_LIFE_MS + ENROLMENT_WAIT_MS + ENROLMENT_REQUEST_MS;
  return withPeerDeadline(context.runtime, limitMs, async (hasPassed) => {
    for (let lost = 0; !hasPassed();) {
      try {
        const reply = await onConnection(address, waiting.authority, context, (connection) =>
          connection.ask(ENROLMENT_PATHS.wait, message, waitReplySchema, ENROLMENT_WAIT_MS + ENROLMENT_REQUEST_MS),
        );
        if (reply.state === 'joined') return reply;
        lost = 0;
      } catch (thrown) {
        if (thrown instanceof OdmoeError && thrown.code === 'PAIRING_UNKNOWN') return null;
        lost += 1;
        if (!(thrown instanceof OdmoeError) || !mayPass(thrown)) throw thrown;
        if (lost > ENROLMENT_RETRIES_LIMIT) throw doesNotComeBack(address, thrown);
        await context.runtime.sleep(ENROLMENT_RETRY_PAUSE_MS, context.signal);
      }
    }
    throw new OdmoeError(
      'JOIN_TOKEN_INVALID',
      `nobody typed the code at main at ${address} in time: start this again for a new code`,
    );
  });
}

/** The same. A machine that is stopped meanwhile tells main. */
async function acceptanceOrLeave(
  address: string,
  waiting: Waiting,
  context: EnrolmentContext,
): Promise<Welcome | null> {
  try {
    return await acceptance(address, waiting, context);
  } catch (thrown) {
    if (context.signal?.aborted === true) await withdraw(address, waiting, context);
    throw thrown;
  }
}

/** Tells main that the machine waits no more. A main that does not hear of it notices by itself, a little later. */
async function withdraw(address: string, waiting: Waiting, { runtime }: EnrolmentContext): Promise<void> {
  const limit = new AbortController();
  const timer = runtime.after(WITHDRAWAL_LIMIT_MS, () => limit.abort());
  const message: Sent<typeof withdrawRequestSchema> = { pairingId: waiting.pairingId };
  try {
    await onConnection(address, waiting.authority, { runtime, signal: limit.signal }, (connection) =>
      connection.ask(ENROLMENT_PATHS.withdraw, message, withdrawReplySchema),
    );
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError)) throw thrown;
  } finally {
    timer.cancel();
  }
}

function doesNotComeBack(address: string, cause: unknown): OdmoeError {
  return new OdmoeError(
    'NO_MAIN',
    `main at ${address} went away while this machine waited, and does not come back: this code is good no more`,
    { cause },
  );
}

/** Checks what main sends to a machine that is let in. Throws TRUST_REFUSED. */
function joined(welcome: Welcome, authority: Buffer, { id, role, key }: JoiningMachine): JoinedCluster {
  const { certificate, roster } = welcome;
  const ownDigest = keyDigest(createPublicKey(key));
  const isAuthority = welcome.authority.equals(authority) && clusterOfAuthority(authority) === welcome.cluster;
  const peer = isAuthority ? readPeerCertificate(certificate, authority) : null;
  const isOwn =
    peer !== null && !isRefusal(peer) && peer.id === id && peer.role === role && peer.keyDigest === ownDigest;
  const list = isOwn ? readRoster(roster, authority) : null;
  const entry = list === null || isRefusal(list) ? undefined : presentEntry(list, id);
  if (entry === undefined || !keysOf(entry).includes(ownDigest)) {
    const what = isOwn ? 'a roster without this machine' : 'a certificate that is not for this machine';
    throw new OdmoeError('TRUST_REFUSED', `main sent ${what}, or not of the authority that it showed: do not go on`);
  }
  return {
    cluster: welcome.cluster,
    authority,
    certificate,
    roster,
    words: authorityWords(authorityDigest(authority)),
  };
}

async function onConnection<Result>(
  address: string,
  authority: Buffer | null,
  context: EnrolmentContext,
  use: (connection: EnrolmentConnection) => Promise<Result>,
): Promise<Result> {
  const connection = await EnrolmentConnection.open(address, authority, context);
  try {
    return await use(connection);
  } finally {
    connection.close();
  }
}
