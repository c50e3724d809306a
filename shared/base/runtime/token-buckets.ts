import { RecentMap } from './recent-map.js';

/** Most at once, and most per second after that. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

interface Bucket {
  left: number;
  filledMs: number;
}

/**
 * Limits how many of each kind pass. If there are too many kinds, the one that was used least recently is forgotten, and begins anew with a full
 * bucket.
 */
export class TokenBuckets {
  private readonly buckets: RecentMap<string, Bucket>;

  constructor(
    private readonly rate: Rate,
    mostKinds: number,
    private readonly nowMs: () => number,
  ) {
    this.buckets = new RecentMap(mostKinds);
  }

  get size(): number {
    return this.buckets.size;
  }

  /** True: one more of the kind may pass, and is counted. */
  take(kind: string): boolean {
    const { burst, perSecond } = this.rate;
    const nowMs = this.nowMs();
    const known = this.buckets.get(kind);
    const left = known === undefined ? burst : known.left + ((nowMs - known.filledMs) / 1000) * perSecond;
    const isLet = left >= 1;
    this.buckets.set(kind, { left: Math.min(burst, left) - (isLet ? 1 : 0), filledMs: nowMs });
    return isLet;
  }
}
