import type { TLSSocket } from 'node:tls';
import type { CertifiedPeer } from './trust/certificate.js';

/** The open connections of admitted peers. */
export class AdmittedSockets {
  /** The peers as their certificates name them. */
  private readonly peers = new Map<TLSSocket, CertifiedPeer>();
  /** The same, with the keys that their nodes have now. */
  private readonly present = new Map<TLSSocket, CertifiedPeer>();
  private readonly byFingerprint = new Map<string, Set<TLSSocket>>();

  add(socket: TLSSocket, peer: CertifiedPeer): void {
    const fingerprint = socket.getPeerX509Certificate()?.fingerprint256 ?? '';
    const ofCertificate = this.byFingerprint.get(fingerprint) ?? new Set();
    this.byFingerprint.set(fingerprint, ofCertificate.add(socket));
    this.peers.set(socket, peer);
    this.present.set(socket, peer);
    socket.once('close', () => {
      this.peers.delete(socket);
      this.present.delete(socket);
      ofCertificate.delete(socket);
      if (ofCertificate.size === 0) this.byFingerprint.delete(fingerprint);
    });
  }

  /** The peer whose certificate has this SHA-256; null: it has no open connection. */
  peerOf(fingerprint: string): CertifiedPeer | null {
    const [socket] = this.byFingerprint.get(fingerprint) ?? [];
    return (socket && this.peers.get(socket)) ?? null;
  }

  /** The peers of all connections, with the keys that their nodes have by `newest`. */
  withNewestKeys(newest: (peer: CertifiedPeer) => CertifiedPeer): [TLSSocket, CertifiedPeer][] {
    for (const [socket, peer] of this.present) this.present.set(socket, newest(peer));
    return [...this.present];
  }

  /** The number of open connections of the peer with this id. */
  countOf(id: string): number {
    return [...this.peers.values()].filter((peer) => peer.id === id).length;
  }
}
