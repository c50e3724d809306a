/** How many at once, and how many a second after that. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

interface Bucket {
  left: number;
  filledMs: number;
}

/** Lets so many of each kind through. Kinds that have not come for longest are forgotten beyond a bound, and begin anew. */
export class TokenBuckets {
  private readonly buckets = new Map<string, Bucket>();

  constructor(
    private readonly rate: Rate,
    private readonly mostKinds: number,
    private readonly nowMs: () => number,
  ) {}

  get size(): number {
    return this.buckets.size;
  }

  /** True: one more of the kind may pass, and has. */
  take(kind: string): boolean {
    const { burst, perSecond } = this.rate;
    const nowMs = this.nowMs();
    const known = this.buckets.get(kind);
    const left = known === undefined ? burst : known.left + ((nowMs - known.filledMs) / 1000) * perSecond;
    const isLet = left >= 1;
    this.buckets.delete(kind);
    this.buckets.set(kind, { left: Math.min(burst, left) - (isLet ? 1 : 0), filledMs: nowMs });
    const [oldest] = this.buckets.keys();
    if (this.buckets.size > this.mostKinds && oldest !== undefined) this.buckets.delete(oldest);
    return isLet;
  }
}
