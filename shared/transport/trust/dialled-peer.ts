import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { OdmoeError } from '../../base/errors/odmoe-error.js';
import { ANY_NODE_NAME, type CertifiedPeer, readPeerCertificate, roleName } from './certificate.js';
import type { ClusterTrust } from './cluster-trust.js';
import type { ServedBy } from './peer-role.js';
import { isRefusal } from './refusal.js';
import { StandingPeer } from './standing-peer.js';

/** The name in a certificate by which a daemon that serves such methods is dialled. */
export function dialledName(servedBy: ServedBy): string {
  return servedBy === 'any node' ? ANY_NODE_NAME : roleName(servedBy);
}

/** The peer at the other end of a channel that this process has dialled. */
export class DialledPeer {
  private standing: StandingPeer | null = null;
  private unwatch: (() => void) | null = null;

  constructor(readonly trust: ClusterTrust) {}

  /** Null: no connection has stood yet. */
  get peer(): CertifiedPeer | null {
    return this.standing?.peer ?? null;
  }

  /** The check of TLS after the chain: undefined if the certificate has the dialled name and the peer is admitted, else the reason. */
  check(name: string, certificate: PeerCertificate): Error | undefined {
    const wrongName = checkServerIdentity(name, certificate);
    if (wrongName !== undefined) return new Error(`the daemon there is not ${name}: ${wrongName.message}`);
    const peer = readPeerCertificate(certificate.raw, this.trust.authority);
    const refusal = isRefusal(peer) ? peer.refusal : this.trust.refusalOf(peer);
    if (refusal !== null) return new Error(refusal);
    if (!isRefusal(peer)) this.standing = new StandingPeer(peer, this.trust);
    return undefined;
  }

  /** `refused`: called when the peer is not admitted any more. */
  watch(refused: (reason: OdmoeError) => void): void {
    this.unwatch = this.trust.watch(() => {
      const refusal = this.standing?.refusal() ?? null;
      if (refusal !== null) refused(new OdmoeError('TRUST_REFUSED', refusal));
    });
  }

  stop(): void {
    this.unwatch?.();
    this.unwatch = null;
  }
}
