import type { KeyObject } from 'node:crypto';
import type { CertifiedPeer } from './certificate.js';

/** A process's part in the trust of a cluster with an authority: its own certificate, and the peers that it admits. */
export interface ClusterTrust {
  readonly cluster: string;
  /** The authority's certificate, DER. */
  readonly authority: Buffer;
  /** The key and certificate of this process. A renewal replaces them. */
  readonly own: OwnCertificate;
  /** Null: the peer is admitted. Otherwise the reason, for the person at the other end. */
  refusalOf(peer: CertifiedPeer): string | null;
  /** The peer of a connection that stands, with the key that its node has now. */
  withNewestKey(peer: CertifiedPeer): CertifiedPeer;
  /** `changed`: called when the own certificate was renewed, and when a newer roster counts. Returns a function that ends this. */
  watch(changed: () => void): () => void;
}

export interface OwnCertificate {
  /** The private key. */
  readonly key: KeyObject;
  /** DER. */
  readonly certificate: Buffer;
}
