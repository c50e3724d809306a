import { RecentMap } from './recent-map.js';

/** Most at once, and most per second after that. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

/** Limits how much passes: a burst, and so much a second after that. */
export class TokenBucket {
  private left: number;
  private filledMs: number;

  constructor(
    private readonly rate: Rate,
    private readonly nowMs: () => number,
  ) {
    this.left = rate.burst;
    this.filledMs = nowMs();
  }

  /** True: so much more may pass, and is counted. */
  take(amount = 1): boolean {
    const { burst, perSecond } = this.rate;
    const nowMs = this.nowMs();
    this.left = Math.min(burst, this.left + ((nowMs - this.filledMs) / 1000) * perSecond);
    this.filledMs = nowMs;
    if (this.left < amount) return false;
    this.left -= amount;
    return true;
  }
}

/**
 * Limits how many of each kind pass. If there are too many kinds, the one that was used least recently is forgotten, and begins anew with a full
 * bucket.
 */
export class TokenBuckets {
  private readonly buckets: RecentMap<string, TokenBucket>;

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
    const bucket = this.buckets.get(kind) ?? new TokenBucket(this.rate, this.nowMs);
    this.buckets.set(kind, bucket);
    return bucket.take();
  }
}
