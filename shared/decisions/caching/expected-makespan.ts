import { POOLS, type PoolCapacities } from '../../settings/cache-policies.js';
import { IntervalHits } from './hit-distribution.js';
import type { PatternMakespan } from './makespan-estimate.js';

/** Expected time of a layer with pools of given capacities. The most popular experts are in the first pool. */
export class ExpectedMakespan {
  private readonly intervals: IntervalHits;
  private readonly experts: number;
  /** Phi_N(k): probability that exactly k of all experts are selected. */
  private readonly activatedProbability: number;
  private readonly known = new Map<string, number>();

  /** @param selection q_r by rank (fitSelectionProbabilities) */
  constructor(
    selection: ArrayLike<number>,
    private readonly activated: number,
    private readonly makespanOf: PatternMakespan,
  ) {
    this.experts = selection.length;
    this.intervals = new IntervalHits(selection, activated);
    this.activatedProbability = this.intervals.of(0, this.experts)[activated] ?? 0;
  }

  of(capacities: PoolCapacities): number {
    const key = POOLS.map((pool) => capacities[pool]).join(' ');
    let makespanMs = this.known.get(key);
    if (makespanMs === undefined) {
      makespanMs = 0;
      this.forEachPattern(capacities, (hits, probability) => {
        makespanMs = (makespanMs ?? 0) + probability * this.makespanOf(hits);
      });
      this.known.set(key, makespanMs);
    }
    return makespanMs;
  }

  /**
   * Calls `visit` with each pattern of hits and its probability if k experts are activated (ZipMoE section 3.4): Phi_M(k - sum of h) / Phi_N(k)
   * times the product of Phi_p(h_p).
   */
  forEachPattern(capacities: PoolCapacities, visit: (hits: PoolCapacities, probability: number) => void): void {
    const distributions: Float64Array[] = [];
    let start = 0;
    for (const pool of POOLS) {
      const end = Math.min(this.experts, start + capacities[pool]);
      distributions.push(this.intervals.of(start, end));
      start = end;
    }
    const [full, compressed, signMantissa, exponent] = distributions;
    const missing = this.intervals.of(start, this.experts);
    const k = this.activated;
    for (let f = 0; f <= k; f += 1) {
      const p1 = (full?.[f] ?? 0) / this.activatedProbability;
      for (let c = 0; p1 > 0 && c <= k - f; c += 1) {
        const p2 = p1 * (compressed?.[c] ?? 0);
        for (let s = 0; p2 > 0 && s <= k - f - c; s += 1) {
          const p3 = p2 * (signMantissa?.[s] ?? 0);
          for (let e = 0; p3 > 0 && e <= k - f - c - s; e += 1) {
            const probability = p3 * (exponent?.[e] ?? 0) * (missing[k - f - c - s - e] ?? 0);
            if (probability > 0) visit({ full: f, compressed: c, signMantissa: s, exponent: e }, probability);
          }
        }
      }
    }
  }
}
