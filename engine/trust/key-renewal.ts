/** Renews a node's key while its daemon runs, so that a key that was copied once is of no use for long. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { renewKey } from '../../shared/transport/node-clients.js';
import type { Transport } from '../../shared/transport/transport.js';
import { spkiOf } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import type { RenewReply, RenewRequest } from '../../shared/wire/messages.js';
import { proveNextKey } from './key-proof.js';
import type { KeyStore, NodeTrust } from './node-trust.js';
import { keysOf, presentEntry, type RosterEntry } from './roster.js';

const DAY_MS = 24 * 3_600_000;
/** Age at which a key is renewed. */
export const KEY_LIFE_MS = 30 * DAY_MS;
/** Most by which a node waits longer, so that the nodes of a cluster that was made in one evening do not all ask at once. */
export const KEY_JITTER_MS = DAY_MS;
/** Interval at which a node looks at its key. */
export const KEY_CHECK_MS = 3_600_000;
/** Pause before the first look, and before a renewal that failed is tried again; each further failure doubles it, up to KEY_CHECK_MS. */
export const KEY_RETRY_MS = 60_000;
/** Longest wait for main's reply. */
const RENEW_TIMEOUT_MS = 10_000;
/** A clock that shows a time before this has never been set. */
const EARLIEST_CLOCK_MS = Date.UTC(2020, 0, 1);

/** The clocks by which a node judges the age of its key. */
export interface KeyClock {
  /** Milliseconds since 1970. */
  readonly wallMs: number;
  /** Milliseconds for which this process has had the key. */
  readonly heldMs: number;
  /** True: this process has renewed the key itself. */
  readonly isRenewedHere: boolean;
  /** The node's own part of KEY_JITTER_MS. */
  readonly jitterMs: number;
}

/** `show`: main learns that the node has its new key, so that the day of the old one can end. */
export type KeyStep = 'renew' | 'show' | 'wait';

/**
 * The next step with a node's key. Pure.
 * @param entry the node in its newest roster
 * @param keyDigest of the key that it has now
 */
export function keyStep(entry: RosterEntry | undefined, keyDigest: string, clock: KeyClock): KeyStep {
  // A node that was removed or replaced has nothing to renew.
  if (entry === undefined || !keysOf(entry).includes(keyDigest)) return 'wait';
  // Main has certified a newer key, and its reply was lost here.
  if (entry.keyDigest !== keyDigest) return 'renew';
  if (isDue(entry, clock)) return 'renew';
  return entry.previousKeyDigest === undefined ? 'wait' : 'show';
}

function isDue({ since, renewedAt }: RosterEntry, { wallMs, heldMs, isRenewedHere, jitterMs }: KeyClock): boolean {
  const lifeMs = KEY_LIFE_MS + jitterMs;
  const madeMs = renewedAt ?? since;
  // Times in the roster are main's. If the two clocks disagree, a key that is new must not seem old again at once.
  if (isRenewedHere || wallMs < Math.max(madeMs, EARLIEST_CLOCK_MS)) return heldMs >= lifeMs;
  return wallMs - madeMs >= lifeMs;
}

/** Asks for the certificate of a key. */
export type Certify = (request: RenewRequest, signal: AbortSignal) => Promise<RenewReply>;

export interface KeyRenewalOptions {
  readonly trust: NodeTrust;
  readonly keys: KeyStore;
  readonly certify: Certify;
  readonly runtime: Runtime;
  readonly log: Logger;
}

/** Looks at the node's key every hour, and renews it when it is due, until it is stopped. Connections that stand go on. */
export class KeyRenewal {
  private readonly jitterMs: number;
  private readonly ended = new AbortController();
  private heldSinceMs: number;
  private isRenewedHere = false;
  private retryMs = KEY_RETRY_MS;
  private timer: Timer;
  private look: Promise<void> = Promise.resolve();
  /** The reason that was logged last, so that a lasting one is logged once. */
  private reported = '';

  constructor(private readonly options: KeyRenewalOptions) {
    const { runtime } = options;
    this.jitterMs = runtime.randomInt(KEY_JITTER_MS);
    this.heldSinceMs = runtime.nowMs();
    // By then main's stream stands, and has brought the newest roster.
    this.timer = this.lookAfter(KEY_RETRY_MS);
  }

  /** Resolves when no renewal is under way any more. */
  async stop(): Promise<void> {
    this.ended.abort();
    this.timer.cancel();
    await this.look;
  }

  private lookAfter(pauseMs: number): Timer {
    const timer = this.options.runtime.after(pauseMs, () => {
      this.look = this.lookNow();
    });
    timer.unref();
    return timer;
  }

  private async lookNow(): Promise<void> {
    let pauseMs = KEY_CHECK_MS;
    try {
      await this.takeStep();
      this.retryMs = KEY_RETRY_MS;
      this.reported = '';
    } catch (thrown) {
      pauseMs = this.retryMs;
      this.retryMs = Math.min(2 * this.retryMs, KEY_CHECK_MS);
      this.report(toOdmoeError(thrown));
    }
    if (!this.ended.signal.aborted) this.timer = this.lookAfter(pauseMs);
  }

  private async takeStep(): Promise<void> {
    const { runtime, trust } = this.options;
    const { id, keyDigest } = trust.ownPeer;
    const clock = {
      wallMs: runtime.wallMs(),
      heldMs: runtime.nowMs() - this.heldSinceMs,
      isRenewedHere: this.isRenewedHere,
      jitterMs: this.jitterMs,
    };
    const entry = trust.roster === null ? undefined : presentEntry(trust.roster, id);
    const step = keyStep(entry, keyDigest, clock);
    if (step === 'renew') await this.renew();
    if (step !== 'wait') await showKey(this.options, this.ended.signal);
  }

  private async renew(): Promise<void> {
    const { runtime, log } = this.options;
    await renewNow(this.options, this.ended.signal);
    this.heldSinceMs = runtime.nowMs();
    this.isRenewedHere = true;
    log.info('renewed the key of this node; connections that stand go on');
  }

  private report(error: OdmoeError): void {
    if (this.ended.signal.aborted || this.reported === error.message) return;
    this.reported = error.message;
    const advice = 'the present one stays good; it is tried again, at least every hour';
    this.options.log.warn(`the key of this node could not be renewed: ${advice}`, { error });
  }
}

type RenewedKey = Pick<KeyRenewalOptions, 'trust' | 'keys' | 'certify' | 'runtime'>;

/**
 * Renews a key that is due, for a process that lives for one question. Throws TRUST_REFUSED, NO_MAIN, TIMEOUT, STORAGE_*: the present key stays
 * good.
 */
export async function renewIfDue(renewed: RenewedKey, signal: AbortSignal): Promise<void> {
  const { trust, runtime } = renewed;
  const { id, keyDigest } = trust.ownPeer;
  const entry = trust.roster === null ? undefined : presentEntry(trust.roster, id);
  const clock = { wallMs: runtime.wallMs(), heldMs: 0, isRenewedHere: false, jitterMs: 0 };
  const step = keyStep(entry, keyDigest, clock);
  if (step === 'renew') await renewNow(renewed, signal);
  if (step !== 'wait') await showKey(renewed, signal);
}

async function renewNow({ runtime, trust, keys, certify }: RenewedKey, signal: AbortSignal): Promise<void> {
  const { authority } = trust;
  const key = await runtime.outside(() => keys.next());
  const { certificate, roster } = await certify(requestFor(key, trust.ownPeer.id), signal);
  const own = await runtime.outside(() => keys.store({ certificate: Buffer.from(certificate), authority, roster }));
  // An older one than that which came meanwhile is refused, and this one stays.
  trust.takeRoster(roster);
  trust.renew(own);
}

/** The same question again, by a connection with the new certificate. The roster of the reply lists the new key alone, or says until when the old one is good. */
async function showKey({ trust, certify }: RenewedKey, signal: AbortSignal): Promise<void> {
  const { roster } = await certify(requestFor(trust.own.key, trust.ownPeer.id), signal);
  // An older one than that which came meanwhile is refused.
  trust.takeRoster(roster);
}

function requestFor(key: KeyObject, id: string): RenewRequest {
  return { spki: spkiOf(createPublicKey(key)), proof: proveNextKey(key, id) };
}

/**
 * Gets main's newest roster, for a node to which main has opened no stream yet. The question is that by which a node shows its key: it changes
 * nothing. Throws TRUST_REFUSED, NO_MAIN, TIMEOUT, CANCELLED.
 */
export async function fetchRoster(
  trust: NodeTrust,
  transport: Pick<Transport, 'call'>,
  address: string,
  signal: AbortSignal,
): Promise<void> {
  const limits = { timeoutMs: RENEW_TIMEOUT_MS, signal };
  const { roster } = await renewKey(transport, address, requestFor(trust.own.key, trust.ownPeer.id), limits);
  const taken = trust.takeRoster(roster);
  if (isRefusal(taken)) throw new OdmoeError('TRUST_REFUSED', `main at ${address}: ${taken.refusal}`);
}

/**
 * NODE_REMOVED with main's own words if it refuses this node's certificate: the node was removed. Null: main does not refuse it, or does not answer. The connection is
 * to a daemon that is main by its certificate, so no other daemon can end this one by such words. The question is that of fetchRoster.
 */
export async function refusalByMain(
  trust: NodeTrust,
  transport: Pick<Transport, 'call'>,
  address: string,
  signal: AbortSignal,
): Promise<OdmoeError | null> {
  const limits = { timeoutMs: RENEW_TIMEOUT_MS, signal };
  try {
    await renewKey(transport, address, requestFor(trust.own.key, trust.ownPeer.id), limits);
    return null;
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    return error.code === 'TRUST_REFUSED' ? new OdmoeError('NODE_REMOVED', error.message, { cause: error }) : null;
  }
}

/** A daemon whose key main renews. */
export interface RenewedNode {
  /** null: the cluster has no authority. */
  readonly trust: NodeTrust | null;
  readonly transport: Pick<Transport, 'call'>;
  readonly runtime: Runtime;
  /** The addresses at which main may be, the best one first. */
  mainAddresses(): readonly string[];
}

/** Renews the key of a worker or a shadow until it is stopped. Null: there is no key to renew. */
export function startKeyRenewal(node: RenewedNode, log: Logger): KeyRenewal | null {
  const { trust, transport, runtime } = node;
  const keys = trust?.keys ?? null;
  if (trust === null || keys === null) return null;
  const certify: Certify = async (request, signal) => {
    let failure = new OdmoeError('NO_MAIN', 'main has not been found yet: start it, or give --main HOST:PORT');
    for (const address of new Set(node.mainAddresses())) {
      try {
        return await renewKey(transport, address, request, { timeoutMs: RENEW_TIMEOUT_MS, signal });
      } catch (thrown) {
        failure = toOdmoeError(thrown);
      }
    }
    throw failure;
  };
  return new KeyRenewal({ trust, keys, certify, runtime, log });
}

/** The addresses of main: that of the settings may be the only one that reaches it from here, and main may have left it since. */
export function addressesOf(configured: string | null, known: string | null): string[] {
  return [configured, known].filter((address) => address !== null);
}
