import type { CertifiedPeer } from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust, OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { admit, type Admission, newerRoster, readRoster, type Roster } from './roster.js';

export interface NodeTrustOptions {
  readonly cluster: string;
  /** The authority's certificate, DER. */
  readonly authority: Buffer;
  readonly own: OwnCertificate;
  readonly admission: Admission;
  /** The newest roster that this node has seen, as it was signed; null: none yet. */
  readonly roster: Uint8Array | null;
  /** Keeps a newer roster or certificate for the next start. What fails here is the caller's to report. */
  readonly save: (kept: { roster?: Uint8Array; own?: OwnCertificate }) => void;
}

/** A node's part in the trust of its cluster: its certificate, and the newest roster that it has seen. */
export class NodeTrust implements ClusterTrust {
  readonly cluster: string;
  readonly authority: Buffer;
  private certificate: OwnCertificate;
  private newest: Roster | null = null;
  private readonly watchers = new Set<() => void>();

  /** The roster given must be one that this authority has signed; a damaged one counts as none. */
  constructor(private readonly options: NodeTrustOptions) {
    this.cluster = options.cluster;
    this.authority = options.authority;
    this.certificate = options.own;
    const roster = options.roster === null ? null : readRoster(options.roster, options.authority);
    if (roster !== null && !isRefusal(roster)) this.newest = roster;
  }

  get own(): OwnCertificate {
    return this.certificate;
  }

  /** Null: this node has seen none yet. */
  get roster(): Roster | null {
    return this.newest;
  }

  refusalOf(peer: CertifiedPeer): string | null {
    return admit(peer, this.newest, this.options.admission);
  }

  /** Goes on with a roster that main has sent, if it is newer than the own one. Refused: it is not signed by the authority, or older. */
  takeRoster(bytes: Uint8Array): Roster | Refusal {
    const offered = readRoster(bytes, this.authority);
    if (isRefusal(offered)) return offered;
    const next = newerRoster(this.newest, offered);
    if (isRefusal(next) || next === this.newest) return next;
    this.options.save({ roster: bytes });
    this.newest = next;
    this.tellWatchers();
    return next;
  }

  /** Shows a renewed certificate from now on. Connections that stand go on. */
  renew(own: OwnCertificate): void {
    this.options.save({ own });
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
