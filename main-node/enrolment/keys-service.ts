/** The renewal of keys at main: that of other nodes, and that of main itself. */
import { KeyRenewal, KEY_CHECK_MS } from '../../engine/trust/key-renewal.js';
import type { NodeTrust } from '../../engine/trust/node-trust.js';
import { ROSTER_ENTRIES_LIMIT } from '../../engine/trust/roster.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { TokenBuckets } from '../../shared/base/runtime/token-buckets.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { Services } from '../../shared/transport/served-methods.js';
import { KEY_QUESTIONS } from '../../shared/wire/limits.js';
import type { RenewReply, RenewRequest } from '../../shared/wire/messages.js';
import type { EnrolmentDesk } from './enrolment-desk.js';

/** The service by which nodes renew their keys. Throws NOT_ALLOWED, QUEUE_FULL, TRUST_REFUSED, STORAGE_*. */
export function keysService(desk: EnrolmentDesk, runtime: Runtime): Services['keys'] {
  const asked = new TokenBuckets(KEY_QUESTIONS, ROSTER_ENTRIES_LIMIT, () => runtime.nowMs());
  return { renew: (request, peer) => renew(desk, asked, request, peer) };
}

async function renew(
  desk: EnrolmentDesk,
  asked: TokenBuckets,
  request: RenewRequest,
  { caller }: PeerContext,
): Promise<RenewReply> {
  if (caller?.keyDigest === undefined) {
    throw new OdmoeError('NOT_ALLOWED', 'a key is renewed by a machine that shows its present one, by a certificate');
  }
  if (!asked.take(caller.id)) {
    throw new OdmoeError(
      'QUEUE_FULL',
      `node ${caller.id} asks for its key too often: wait a minute before the next try`,
    );
  }
  const { certificate, roster } = await desk.renewKey({ ...caller, keyDigest: caller.keyDigest }, request);
  return { certificate, roster };
}

export interface MainKeys {
  readonly desk: EnrolmentDesk;
  /** Main's own. */
  readonly trust: NodeTrust;
  readonly runtime: Runtime;
}

/** Renews main's own key, and ends the day of keys that were renewed, until it is stopped. */
export function startMainKeys({ desk, trust, runtime }: MainKeys, log: Logger): { stop(): Promise<void> } {
  const { keys } = trust;
  const certify = (request: RenewRequest): Promise<RenewReply> => desk.renewKey(trust.ownPeer, request);
  const renewal = keys === null ? null : new KeyRenewal({ trust, keys, certify, runtime, log });
  let ending = Promise.resolve();
  const timer = runtime.every(KEY_CHECK_MS, () => {
    ending = desk.endPreviousKeys().catch((thrown: unknown) => {
      log.warn('keys that were renewed a day ago stay good for another hour', { error: toOdmoeError(thrown) });
    });
  });
  timer.unref();
  return {
    stop: async () => {
      timer.cancel();
      await Promise.all([renewal?.stop(), ending]);
    },
  };
}
