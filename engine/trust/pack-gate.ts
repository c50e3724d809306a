import type { NodeTrust } from './node-trust.js';

/** Says whether this node may fetch a pack, or slices of it: the authority signs the digests of their manifests, in the roster. */
export class PackGate {
  /**
   * @param trust null: the cluster has no authority, and everything may be fetched
   * @param digest 64 digits of base 16
   */
  constructor(
    private readonly trust: NodeTrust | null,
    private readonly what: 'pack' | 'slices',
    private readonly digest: string,
  ) {}

  /** Null: it may be fetched. Otherwise the reason, which a newer roster may end. */
  get refusal(): string | null {
    const { trust, what, digest } = this;
    if (trust === null || trust.roster?.packs.includes(digest) === true) return null;
    return `the authority of "${trust.cluster}" has not signed the ${what} ${digest.slice(0, 16)}, so nothing of it is fetched: a main signs what it serves when it starts`;
  }

  /** `changed`: called when the answer may be another one. Returns a function that ends this. */
  watch(changed: () => void): () => void {
    return this.trust?.watch(changed) ?? (() => undefined);
  }
}
