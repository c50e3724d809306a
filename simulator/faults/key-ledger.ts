import type { CertifiedCaller } from '../../shared/transport/trust/peer-role.js';

/** One key of the cluster, as the world knows it, whatever its nodes say. */
export interface LedgerKey extends CertifiedCaller {
  readonly keyDigest: string;
  /** Count of the first roster that lists the key. */
  readonly fromCount: number;
  /** Count of the first roster that does not list it any more; Infinity: the newest one lists it. */
  untilCount: number;
}

/** All keys that were ever in the cluster, each with the rosters that list it. Checks compare the daemons' own decisions with it. */
export class KeyLedger {
  private readonly keys = new Map<string, LedgerKey>();

  listed(peer: CertifiedCaller, keyDigest: string, fromCount: number): void {
    const { cluster, role, id } = peer;
    this.keys.set(keyDigest, { cluster, role, id, keyDigest, fromCount, untilCount: Infinity });
  }

  /** The key is not good any more from the roster of this count on. */
  ended(keyDigest: string, untilCount: number): void {
    const key = this.keys.get(keyDigest);
    if (key !== undefined) key.untilCount = Math.min(key.untilCount, untilCount);
  }

  keyOf(keyDigest: string): LedgerKey | null {
    return this.keys.get(keyDigest) ?? null;
  }

  /** Keys of the node that the newest roster lists. */
  presentOf(id: string): LedgerKey[] {
    return [...this.keys.values()].filter((key) => key.id === id && key.untilCount === Infinity);
  }

  /** True if a node whose newest roster has this count must refuse the key. */
  isOver(keyDigest: string, count: number): boolean {
    const key = this.keys.get(keyDigest);
    return key === undefined || key.untilCount <= count;
  }
}
