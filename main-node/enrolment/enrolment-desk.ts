/** Decides who is let into the cluster, for the machines at the door and for the operator. */
import { authorityWords } from '../../engine/trust/authority-words.js';
import type { Welcome } from '../../engine/trust/enrolment-messages.js';
import { isKeyProof, isNextKeyProof } from '../../engine/trust/key-proof.js';
import {
  acceptPairing,
  afterConnection,
  beginPairing,
  EMPTY_PAIRING_BOOK,
  isAbsent,
  isPairingOver,
  isTooSoon,
  PAIRING_LIFE_MS,
  PAIRINGS_LIMIT,
  revealPairing,
  waitingPairings,
  withAbsence,
  withoutAccepted,
  withoutOld,
  withoutPairing,
  WAITS_NO_MORE,
  WRONG_CODES_LIMIT,
  type Pairing,
  type PairingBook,
  type PairingRequest,
  type PairingReveal,
} from '../../engine/trust/pairing.js';
import {
  certifyPeer,
  listPeer,
  removePeer,
  renewPeer,
  withoutPreviousKeys,
} from '../../engine/trust/roster-changes.js';
import { signRoster, type Roster, type RosterEntry } from '../../engine/trust/roster.js';
import {
  createToken,
  isClockSetBack,
  listTokens,
  revokeToken,
  useToken,
  type NewToken,
  type StoredToken,
  type TokenClock,
  type TokenLine,
} from '../../engine/trust/token-book.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { IDENTIFIER_RULE, isIdentifier } from '../../shared/base/text/identifier.js';
import { formatDuration } from '../../shared/base/text/units.js';
import {
  authorityDigest,
  type CertifiedPeer,
  keyDigest,
  readPublicKey,
} from '../../shared/transport/trust/certificate.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { ENROLMENT_WAIT_MS } from '../../shared/wire/limits.js';
import type { EnrolmentState } from './enrolment-state.js';

/** A machine that asks to join by a token. */
export interface TokenJoin {
  readonly tokenId: string;
  readonly secret: string;
  readonly role: PeerRole;
  readonly id: string;
  /** Its public key (SPKI, DER). */
  readonly spki: Buffer;
  /** proveKey on the connection that carries the request. */
  readonly proof: Buffer;
  /** The export of that connection. */
  readonly exporter: Buffer;
}

/** A machine that has revealed its key. */
interface RevealedMachine {
  readonly id: string;
  readonly role: PeerRole;
  /** Null: it waits until its code is typed. */
  readonly welcome: Welcome | null;
}

/** A machine that waits for the operator. */
export interface WaitingMachine {
  readonly id: string;
  readonly role: PeerRole;
  readonly device: string;
  readonly address: string;
  readonly waitedMs: number;
}

/** A machine that the operator has let in. */
export interface AcceptedMachine extends Omit<WaitingMachine, 'waitedMs'> {
  /** The authority in words, as the machine shows them, too. */
  readonly words: string;
}

/** The decision about a machine that waited. `code`: that of a refusal. */
type Decision = { readonly certificate: Buffer } | (Refusal & { readonly code: ErrorCode });

/** Decisions that are remembered for machines that ask after them. */
const DECISIONS_LIMIT = 4 * PAIRINGS_LIMIT;

const LIFE = formatDuration(PAIRING_LIFE_MS);

export class EnrolmentDesk {
  /** The authority's digest, 64 digits of base 16. */
  readonly digest: string;
  /** The authority in words. */
  readonly words: string;
  private pairings: PairingBook = EMPTY_PAIRING_BOOK;
  /** Pairings whose code was typed and whose certificate is being made. */
  private readonly accepting = new Set<string>();
  /** Digests of renewed keys whose nodes have shown that they have the certificate. */
  private readonly shownKeys = new Set<string>();
  private readonly decisions = new RecentMap<string, Decision>(DECISIONS_LIMIT);
  /** For each pairing whose machine waits on a connection: ends that wait. */
  private readonly waits = new Map<string, () => void>();
  private lastChange: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly state: EnrolmentState,
    private readonly runtime: Runtime,
  ) {
    this.digest = authorityDigest(state.authority.certificate);
    this.words = authorityWords(this.digest);
  }

  /** The authority's certificate, DER. */
  get authority(): Buffer {
    return this.state.authority.certificate;
  }

  get cluster(): string {
    return this.state.authority.cluster;
  }

  /** Lets a machine in by its token, and counts the use before it signs. Throws JOIN_TOKEN_INVALID, TRUST_REFUSED, STORAGE_*. */
  async join(request: TokenJoin): Promise<Welcome> {
    const { id, role, spki, proof, exporter } = request;
    if (!isIdentifier(id)) throw refused(`the id that asks is none: give --id with ${IDENTIFIER_RULE}`);
    const publicKey = wanted(readPublicKey(spki));
    if (!isKeyProof(proof, publicKey, exporter, id)) {
      throw refused('the machine does not hold the key that it shows, or somebody stands between: do not go on');
    }
    return this.inOrder(async () => {
      const { authority, tokens, roster } = this.state;
      const asking = { role, id, keyDigest: keyDigest(publicKey) };
      const listed = listPeer(roster, asking, this.runtime.wallMs());
      const used = wanted(
        useToken(tokens, { ...request, isListed: listed === roster }, this.tokenClock()),
        'JOIN_TOKEN_INVALID',
      );
      // A machine that cannot be listed costs no use.
      wanted(listed);
      if (used.book !== tokens) await this.state.saveTokens(used.book);
      const peer = { role, id };
      const certified = wanted(certifyPeer(authority, this.state.roster, peer, publicKey, this.runtime.wallMs()));
      await this.saveRoster(certified.roster);
      return this.welcome(certified.certificate);
    });
  }

  /** Takes a machine in that wants to show a code. Throws TRUST_REFUSED, or QUEUE_FULL for one that comes right after another. */
  beginPairing(request: PairingRequest): Pairing {
    const nowMs = this.runtime.nowMs();
    const code = isTooSoon(this.pairings, request, nowMs) ? 'QUEUE_FULL' : 'TRUST_REFUSED';
    const begun = wanted(beginPairing(this.pairings, request, nowMs, this.runtime), code);
    this.goOn(begun.book, 'this machine was started again and shows a newer code');
    return begun.pairing;
  }

  /** The connection has ended on which a machine began. */
  endConnection(pairingId: string): void {
    this.pairings = afterConnection(this.pairings, pairingId);
  }

  /**
   * From now on the machine's code can be typed, and `welcome` is null. A machine whose key is listed was let in before, and has lost main's reply: it
   * gets its certificate, and shows no code. Throws TRUST_REFUSED, JOIN_TOKEN_INVALID.
   */
  revealPairing(pairingId: string, reveal: PairingReveal): RevealedMachine {
    const decided = this.decisions.get(pairingId);
    if (decided !== undefined && isRefusal(decided)) throw new OdmoeError(decided.code, decided.refusal);
    const nowMs = this.runtime.nowMs();
    const { book, pairing } = wanted(revealPairing(this.pairings, pairingId, reveal, this.digest, nowMs));
    const { authority, roster } = this.state;
    const { id, role } = pairing.request;
    const { publicKey } = requirePresent(pairing.revealed, 'A machine that reveals its key has one.');
    const nowWallMs = this.runtime.wallMs();
    const listed = listPeer(roster, { id, role, keyDigest: keyDigest(publicKey) }, nowWallMs);
    // Nobody is to type the code of a machine in vain.
    const refusal = isRefusal(listed) ? listed.refusal : null;
    const isIn = listed === roster;
    this.goOn(refusal !== null || isIn ? withoutPairing(book, pairingId) : book, refusal ?? WAITS_NO_MORE);
    if (refusal !== null) throw refused(refusal);
    if (!isIn) return { id, role, welcome: null };
    const { certificate } = wanted(certifyPeer(authority, roster, { id, role }, publicKey, nowWallMs));
    return { id, role, welcome: this.welcome(certificate) };
  }

  /**
   * Waits for the operator's decision on a machine. Null: there is none yet, ask again. A newer wait for the same machine ends an older one.
   * `signal` ends the wait. `waits`: called if the decision is not there already. Throws JOIN_TOKEN_INVALID, TRUST_REFUSED, and PAIRING_UNKNOWN
   * for a machine that main knows nothing of.
   */
  async waitForDecision(pairingId: string, signal: AbortSignal, waits: () => void): Promise<Welcome | null> {
    this.endOldPairings();
    if (!this.decisions.has(pairingId)) {
      const pairing = this.pairings.pairings.find((each) => each.pairingId === pairingId);
      if (pairing === undefined && !this.accepting.has(pairingId)) {
        throw new OdmoeError('PAIRING_UNKNOWN', WAITS_NO_MORE);
      }
      waits();
      const leftMs = pairing === undefined ? Infinity : pairing.begunMs + PAIRING_LIFE_MS - this.runtime.nowMs();
      this.pairings = withAbsence(this.pairings, pairingId, null);
      await this.nextDecision(pairingId, Math.min(leftMs, ENROLMENT_WAIT_MS), signal);
      if (!this.waits.has(pairingId)) this.pairings = withAbsence(this.pairings, pairingId, this.runtime.nowMs());
      this.endOldPairings();
    }
    const decision = this.decisions.get(pairingId);
    if (decision === undefined) return null;
    if (isRefusal(decision)) throw new OdmoeError(decision.code, decision.refusal);
    return this.welcome(decision.certificate);
  }

  /** The machine goes: its code is good no more. Returns its id; null: it does not wait. */
  withdraw(pairingId: string): string | null {
    const pairing = this.pairings.pairings.find((each) => each.pairingId === pairingId);
    this.goOn(withoutPairing(this.pairings, pairingId), WAITS_NO_MORE);
    return pairing?.request.id ?? null;
  }

  /** Operator: the machines that show a code and wait, the first one first. */
  waitingMachines(): WaitingMachine[] {
    const nowMs = this.runtime.nowMs();
    return waitingPairings(this.pairings, nowMs).map(({ request, begunMs }) => {
      const { id, role, device, address } = request;
      return { id, role, device, address, waitedMs: nowMs - begunMs };
    });
  }

  /** Operator: so many wrong codes send every machine away that waits. */
  get wrongCodesLeft(): number {
    return WRONG_CODES_LIMIT - this.pairings.wrongCodes;
  }

  /** Operator: lets the machine in that shows this code. Throws JOIN_TOKEN_INVALID, USAGE the code let it in before, TRUST_REFUSED, STORAGE_*. */
  async accept(typed: string): Promise<AcceptedMachine> {
    const result = acceptPairing(this.pairings, typed, this.runtime.nowMs());
    const pairing = isRefusal(result) ? null : result.pairing;
    if (pairing !== null) this.accepting.add(pairing.pairingId);
    this.goOn(
      result.book,
      `${WRONG_CODES_LIMIT} wrong codes were typed at main, or two machines showed one code, so main sent it away: start it again for a new code`,
    );
    if (isRefusal(result))
      throw new OdmoeError(result.isRepeated === true ? 'USAGE' : 'JOIN_TOKEN_INVALID', result.refusal);
    return this.inOrder(() => this.letIn(result.pairing));
  }

  /** Operator: makes a token. `text` is shown once; main forgets it. Throws USAGE, STORAGE_*. */
  async createToken(token: NewToken): Promise<{ text: string; token: StoredToken }> {
    return this.inOrder(async () => {
      const { tokens } = this.state;
      const made = wanted(createToken(tokens, token, this.digest, this.tokenClock(), this.runtime), 'USAGE');
      await this.state.saveTokens(made.book);
      return { text: made.text, token: made.token };
    });
  }

  /** Operator: the tokens that main remembers. */
  listTokens(): TokenLine[] {
    return listTokens(this.state.tokens, this.tokenClock());
  }

  /** Operator: ends a token. Throws USAGE, STORAGE_*. */
  async revokeToken(id: string): Promise<void> {
    await this.inOrder(async () => {
      const tokens = wanted(revokeToken(this.state.tokens, id, this.runtime.wallMs()), 'USAGE');
      await this.state.saveTokens(tokens);
    });
  }

  /** Operator: every key that is or was in the cluster. */
  listNodes(): readonly RosterEntry[] {
    return this.state.roster.entries;
  }

  /** Operator: removes a node. Its key never comes back. Throws USAGE, STORAGE_*. */
  async removeNode(id: string): Promise<void> {
    await this.changeRoster((roster) => removePeer(roster, id, this.runtime.wallMs()), 'USAGE');
  }

  /**
   * Certifies the next key of a node that shows its present one. A node that asks again for the key that it shows has got its certificate: the day
   * of the key before can end. Throws TRUST_REFUSED, STORAGE_*.
   * @param peer the node, by the certificate of its connection
   */
  async renewKey(peer: CertifiedPeer, { spki, proof }: { spki: Uint8Array; proof: Uint8Array }): Promise<Welcome> {
    const publicKey = wanted(readPublicKey(Buffer.from(spki)));
    if (!isNextKeyProof(proof, publicKey, peer.id)) {
      throw refused(`node ${peer.id} does not hold the key that it wants certified: use odmoe of the same version`);
    }
    return this.inOrder(async () => {
      const { authority, roster } = this.state;
      const certified = wanted(renewPeer(authority, roster, peer, publicKey, this.runtime.wallMs()));
      await this.saveRoster(certified.roster);
      if (keyDigest(publicKey) === peer.keyDigest) this.shownKeys.add(peer.keyDigest);
      return this.welcome(certified.certificate);
    });
  }

  /** Ends the day of keys that were renewed. Throws STORAGE_*. */
  async endPreviousKeys(): Promise<void> {
    const isShown = (digest: string): boolean => this.shownKeys.has(digest);
    const { entries } = await this.changeRoster((roster) =>
      withoutPreviousKeys(roster, this.runtime.wallMs(), isShown),
    );
    const renewed = new Set(
      entries.filter((entry) => entry.previousKeyDigest !== undefined).map((entry) => entry.keyDigest),
    );
    for (const digest of this.shownKeys) if (!renewed.has(digest)) this.shownKeys.delete(digest);
  }

  /** Changes the roster after every change before. Allowed packs come by this, too. Throws `code`, STORAGE_*. */
  async changeRoster(change: (roster: Roster) => Roster | Refusal, code: ErrorCode = 'TRUST_REFUSED'): Promise<Roster> {
    return this.inOrder(async () => {
      const next = wanted(change(this.state.roster), code);
      await this.saveRoster(next);
      return next;
    });
  }

  private async saveRoster(roster: Roster): Promise<void> {
    if (roster !== this.state.roster) await this.state.saveRoster(roster);
  }

  private welcome(certificate: Buffer): Welcome {
    const { authority, roster } = this.state;
    return {
      state: 'joined',
      cluster: authority.cluster,
      authority: authority.certificate,
      certificate,
      roster: signRoster(roster, authority),
    };
  }

  private async letIn({ pairingId, request, revealed }: Pairing): Promise<AcceptedMachine> {
    const { id, role, device, address } = request;
    const { publicKey, code: typed } = requirePresent(
      revealed,
      'A code was typed of a machine that has revealed none.',
    );
    try {
      const { authority, roster } = this.state;
      const certified = wanted(certifyPeer(authority, roster, { id, role }, publicKey, this.runtime.wallMs()));
      await this.saveRoster(certified.roster);
      this.decide(pairingId, { certificate: certified.certificate });
    } catch (thrown) {
      this.pairings = withoutAccepted(this.pairings, typed);
      const isTold = thrown instanceof OdmoeError && thrown.code === 'TRUST_REFUSED';
      const what = isTold
        ? thrown.message
        : 'main could not write down that it is let in: look at its log, and start this again for a new code';
      const code = isTold ? 'TRUST_REFUSED' : 'JOIN_TOKEN_INVALID';
      this.decide(pairingId, { refusal: `the code was typed, and ${what}`, code });
      throw isTold ? thrown : notWritten(id, toOdmoeError(thrown));
    } finally {
      this.accepting.delete(pairingId);
    }
    return { id, role, device, address, words: this.words };
  }

  /** Goes on with a book. `why`: the reason for machines that it has no more. */
  private goOn(book: PairingBook, why: string): void {
    const before = this.pairings.pairings;
    const nowMs = this.runtime.nowMs();
    this.pairings = book;
    const kept = new Set(book.pairings.map(({ pairingId }) => pairingId));
    for (const pairing of before) {
      const { pairingId } = pairing;
      if (kept.has(pairingId) || this.accepting.has(pairingId)) continue;
      // One that was away too long is forgotten, and shows a new code if it comes back.
      if (isAbsent(pairing, nowMs) && !isPairingOver(pairing, nowMs)) continue;
      const refusal = isPairingOver(pairing, nowMs) ? overWords(pairing) : why;
      this.decide(pairingId, { refusal, code: 'JOIN_TOKEN_INVALID' });
    }
  }

  private endOldPairings(): void {
    this.goOn(withoutOld(this.pairings, this.runtime.nowMs()), NOT_IN_TIME);
  }

  private decide(pairingId: string, decision: Decision): void {
    this.decisions.set(pairingId, decision);
    this.waits.get(pairingId)?.();
  }

  private async nextDecision(pairingId: string, limitMs: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.waits.get(pairingId)?.();
    await new Promise<void>((resolve) => {
      const end = (): void => {
        timer.cancel();
        leave();
        if (this.waits.get(pairingId) === end) this.waits.delete(pairingId);
        resolve();
      };
      const timer = this.runtime.after(limitMs, end);
      const leave = onAbort(signal, end);
      this.waits.set(pairingId, end);
    });
  }

  /** True: main's clock shows a time before one at which something is known to have happened. */
  get clockIsSetBack(): boolean {
    const { tokens, roster } = this.state;
    return isClockSetBack(this.runtime.wallMs(), tokens, roster);
  }

  private tokenClock(): TokenClock {
    const { clockIsSetBack, runtime } = this;
    return {
      nowMs: runtime.wallMs(),
      uptimeMs: runtime.hostUptimeMs(),
      bootId: runtime.hostBootId(),
      clockIsSetBack,
    };
  }

  /** Runs after every change that began before. */
  private inOrder<Result>(change: () => Promise<Result>): Promise<Result> {
    const result = this.lastChange.then(change);
    this.lastChange = result.catch(() => undefined);
    return result;
  }
}

/** For the operator. The same command would find nobody: the machine was sent away. */
function notWritten(id: string, error: OdmoeError): OdmoeError {
  const reason = error.cause instanceof Error ? error.cause.message : error.message;
  const advice = `mend that, start ${id} again, and type its new code`;
  return new OdmoeError(
    error.code,
    `main could not write down that ${id} is let in (${reason}), and sent it away: ${advice}`,
    {
      cause: error,
    },
  );
}

function overWords({ revealed }: Pairing): string {
  return revealed === null ? 'the machine did not show its key in time: start it again' : NOT_IN_TIME;
}

const NOT_IN_TIME = `nobody typed the code of this machine at main within ${LIFE}: start it again for a new code`;

function refused(words: string): OdmoeError {
  return new OdmoeError('TRUST_REFUSED', words);
}

/** The result, if it is no refusal. Throws `code`. */
function wanted<Result extends object>(result: Result | Refusal, code: ErrorCode = 'TRUST_REFUSED'): Result {
  if (isRefusal(result)) throw new OdmoeError(code, result.refusal);
  return result;
}
