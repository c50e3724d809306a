/** The checks of certificates when a connection in memory begins. They run the code of the real ports, on certificates instead of sockets. */
import { X509Certificate } from 'node:crypto';
import type { MethodRules } from '../../shared/transport/methods.js';
import type { CertifiedPeer } from '../../shared/transport/trust/certificate.js';
import { admittedPeer } from '../../shared/transport/trust/certified-socket.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import { type DialledPeer, dialledName } from '../../shared/transport/trust/dialled-peer.js';
import type { Refusal } from '../../shared/transport/trust/refusal.js';
import { rosterWithoutKeys } from './roster-without-keys.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';

/** Null: the dialler goes on with the server, and `dialled` knows it from now on. Otherwise the reason why not. */
export function serverRefusal(
  dialled: DialledPeer | null,
  servedBy: MethodRules['servedBy'],
  server: ClusterTrust | null,
): string | null {
  if (dialled === null) return null;
  if (server === null) return 'the daemon there does not speak TLS';
  const certificate = new X509Certificate(server.own.certificate).toLegacyObject();
  return dialled.check(dialledName(servedBy), certificate)?.message ?? null;
}

/** The dialler, if the server admits it. `shown`: the certificate (DER) that the dialler shows; null: none. */
export function admittedDialler(shown: Buffer | null, server: ClusterTrust): CertifiedPeer | Refusal {
  const certificate = shown === null ? undefined : new X509Certificate(shown);
  const socket = { getPeerX509Certificate: () => certificate, authorized: true, authorizationError: NO_ERROR };
  return admittedPeer(socket, server);
}

const NO_ERROR = new Error('there is none');

/**
 * Bytes that stand for a message in the history and on its link; null: its own. Keys and signatures differ on every run, so a roster goes without
 * them.
 */
export function recordedBytes(message: PeerMessage | null): Buffer | null {
  return message?.kind === 'roster' ? rosterWithoutKeys(message.roster.signed) : null;
}
