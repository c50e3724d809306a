import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { type CertifiedPeer, readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust, OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { admit, type Admission, newerRoster, readRoster, type Roster } from './roster.js';

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
}

/** A node's part in the trust of its cluster: its certificate, and the newest roster that it has seen. */
export class NodeTrust implements ClusterTrust {
  readonly cluster: string;
  readonly authority: Buffer;
  private certificate: OwnCertificate;
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
    const own = readPeerCertificate(this.certificate.certificate, this.authority);
    return isRefusal(own) ? own.refusal : admit(own, this.roster, 'not-removed');
  }

  refusalOf(peer: CertifiedPeer): string | null {
    return admit(peer, this.roster, this.options.admission);
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
