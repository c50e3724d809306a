import type { TLSSocket } from 'node:tls';
import type { CertifiedPeer } from './trust/certificate.js';
import type { StandingPeer } from './trust/standing-peer.js';

/** A connection whose peer is not admitted any more. */
export interface RefusedSocket {
  readonly socket: TLSSocket;
  readonly peer: CertifiedPeer;
  readonly refusal: string;
}

/** The open connections of admitted peers. */
export class AdmittedSockets {
  private readonly peers = new Map<TLSSocket, StandingPeer>();
  private readonly byFingerprint = new Map<string, Set<TLSSocket>>();

  add(socket: TLSSocket, peer: StandingPeer): void {
    const fingerprint = socket.getPeerX509Certificate()?.fingerprint256 ?? '';
    const ofCertificate = this.byFingerprint.get(fingerprint) ?? new Set();
    this.byFingerprint.set(fingerprint, ofCertificate.add(socket));
    this.peers.set(socket, peer);
    socket.once('close', () => {
      this.peers.delete(socket);
      ofCertificate.delete(socket);
      if (ofCertificate.size === 0) this.byFingerprint.delete(fingerprint);
    });
  }

  /** The peer whose certificate has this SHA-256; null: it has no open connection. */
  peerOf(fingerprint: string): CertifiedPeer | null {
    const [socket] = this.byFingerprint.get(fingerprint) ?? [];
    return (socket && this.peers.get(socket)?.shown) ?? null;
  }

  /** The connections that a newer roster ends. */
  refused(): RefusedSocket[] {
    return [...this.peers].flatMap(([socket, standing]) => {
      const refusal = standing.refusal();
      return refusal === null ? [] : [{ socket, peer: standing.shown, refusal }];
    });
  }

  /** The number of open connections of the peer with this id. */
  countOf(id: string): number {
    return [...this.peers.values()].filter(({ shown }) => shown.id === id).length;
  }
}
