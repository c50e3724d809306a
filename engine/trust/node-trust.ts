import type { KeyObject } from 'node:crypto';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { type CertifiedPeer, readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust, OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import type { Certified } from './identity-files.js';
import { admit, type Admission, newerRoster, readRoster, removalOf, type Roster, withNewestKey } from './roster.js';

/** The keys of a node, where it keeps them. */
export interface KeyStore {
  /** The key that main is asked to certify. It is kept before main hears of it, and stays the same until it is stored. Throws STORAGE_*. */
  next(): Promise<KeyObject>;
  /** Keeps what main has certified for it. Returns the certificate to show from now on. Throws TRUST_REFUSED, STORAGE_*. */
  store(certified: Certified): Promise<OwnCertificate>;
}

export interface NodeTrustOptions {
  readonly cluster: string;
  /** The authority's certificate, DER. */
  readonly authority: Buffer;
  readonly own: OwnCertificate;
  readonly admission: Admission;
  /** The newest roster that this node has seen, as the authority signed it; null: none yet. */
  readonly signedRoster: Uint8Array | null;
  /** Keeps a newer roster for the next start. A roster counts at once, also where it cannot be kept: a removal must not wait for a disk. */
  readonly saveRoster: (signed: Uint8Array) => void;
  /** Left out: the own key is never renewed. */
  readonly keys?: KeyStore;
}

/** A node's part in the trust of its cluster: its certificate, and the newest roster that it has seen. */
export class NodeTrust implements ClusterTrust {
  readonly cluster: string;
  readonly authority: Buffer;
  private certificate: OwnCertificate;
  /** The peer that the own certificate names; null: it has not been read yet. */
  private named: CertifiedPeer | null = null;
  private newest: { readonly roster: Roster; readonly signed: Uint8Array } | null = null;
  private readonly watchers = new Set<() => void>();

  constructor(private readonly options: NodeTrustOptions) {
    this.cluster = options.cluster;
    this.authority = options.authority;
    this.certificate = options.own;
    const { signedRoster: signed } = options;
    const roster = signed === null ? null : readRoster(signed, options.authority);
    if (roster === null || signed === null) return;
    assertInvariant(
      !isRefusal(roster),
      "A node's own roster is signed by its authority: whoever reads it checks that.",
    );
    this.newest = { roster, signed };
  }

  get own(): OwnCertificate {
    return this.certificate;
  }

  /** Null: the own key is never renewed. */
  get keys(): KeyStore | null {
    return this.options.keys ?? null;
  }

  /** The names and the key of the own certificate. */
  get ownPeer(): CertifiedPeer {
    return (this.named ??= this.readOwn());
  }

  private readOwn(): CertifiedPeer {
    const own = readPeerCertificate(this.certificate.certificate, this.authority);
    assertInvariant(!isRefusal(own), "A node's own certificate is of its authority: whoever reads it checks that.");
    return own;
  }

  /** Null: this node has seen none yet. */
  get roster(): Roster | null {
    return this.newest?.roster ?? null;
  }

  /** The same, as the authority signed it, to hand it on. */
  get signedRoster(): Uint8Array | null {
    return this.newest?.signed ?? null;
  }

  /** The reason why this node itself is not in its cluster any more; null: it is, as far as it knows. */
  get ownRemoval(): string | null {
    return admit(this.ownPeer, this.roster, 'not-removed');
  }

  /** The reason why nobody of this id is in the cluster any more; null: one is, or none was removed, as far as this node knows. */
  removalOf(id: string): string | null {
    return this.roster === null ? null : removalOf(this.roster, id);
  }

  refusalOf(peer: CertifiedPeer): string | null {
    return admit(peer, this.roster, this.options.admission);
  }

  withNewestKey(peer: CertifiedPeer): CertifiedPeer {
    return withNewestKey(peer, this.roster);
  }

  /**
   * Goes on with a roster that main has sent, if it is newer than the own one. Watchers are told in the order in which they began to watch.
   * Refused: it is not signed by the authority, or older.
   */
  takeRoster(bytes: Uint8Array): Roster | Refusal {
    const offered = readRoster(bytes, this.authority);
    if (isRefusal(offered)) return offered;
    const next = newerRoster(this.roster, offered);
    if (isRefusal(next) || next === this.roster) return next;
    this.newest = { roster: next, signed: bytes };
    this.tellWatchers();
    this.options.saveRoster(bytes);
    return next;
  }

  /** Shows a renewed certificate from now on; the caller has stored it. Connections that stand go on. */
  renew(own: OwnCertificate): void {
    this.certificate = own;
    this.named = null;
    this.tellWatchers();
  }

  watch(changed: () => void): () => void {
    this.watchers.add(changed);
    return () => {
      this.watchers.delete(changed);
    };
  }

  private tellWatchers(): void {
    for (const changed of [...this.watchers]) changed();
  }
}
