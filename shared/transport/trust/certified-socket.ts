import type { TLSSocket } from 'node:tls';
import { type CertifiedPeer, readPeerCertificate } from './certificate.js';
import type { ClusterTrust } from './cluster-trust.js';
import { isRefusal, type Refusal } from './refusal.js';

/**
 * The peer at the other end of a connection, if this process admits it. A resumed session brings no certificate with it, so the peer is looked up
 * in the roster for every connection and not taken from what an earlier one proved.
 */
export function admittedPeer(
  socket: Pick<TLSSocket, 'getPeerX509Certificate' | 'authorized' | 'authorizationError'>,
  trust: Pick<ClusterTrust, 'authority' | 'cluster' | 'refusalOf'>,
): CertifiedPeer | Refusal {
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) {
    return {
      refusal: `this machine has no certificate of the cluster "${trust.cluster}": let it join by \`odmoe worker\` and the code that it shows, or by \`odmoe worker --join TOKEN\``,
    };
  }
  const peer = readPeerCertificate(certificate.raw, trust.authority);
  if (isRefusal(peer)) return peer;
  if (!socket.authorized)
    return { refusal: `TLS does not accept the certificate (${String(socket.authorizationError)})` };
  const refusal = trust.refusalOf(peer);
  return refusal === null ? peer : { refusal };
}
