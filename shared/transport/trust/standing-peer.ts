import type { CertifiedPeer } from './certificate.js';
import type { ClusterTrust } from './cluster-trust.js';

/**
 * The peer of a connection that stands. If its node renews its key meanwhile, it is the peer with the new key, so that the connection goes on. One
 * that was opened with a key that had been renewed before ends with the day of that key: nobody but a thief has use for it much longer.
 */
export class StandingPeer {
  private newest: CertifiedPeer;
  private readonly followsRenewals: boolean;

  /** @param shown the peer as its certificate names it, when the connection was opened */
  constructor(
    readonly shown: CertifiedPeer,
    private readonly trust: ClusterTrust,
  ) {
    this.newest = shown;
    this.followsRenewals = trust.withNewestKey(shown) === shown;
  }

  /** With the key by which the peer is admitted now. */
  get peer(): CertifiedPeer {
    return this.newest;
  }

  /** The reason why the peer is not admitted any more; null: it is. Call it after each newer roster. */
  refusal(): string | null {
    if (this.followsRenewals) this.newest = this.trust.withNewestKey(this.newest);
    return this.trust.refusalOf(this.newest);
  }
}
