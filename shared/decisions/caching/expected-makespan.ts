import { POOLS, type PoolCapacities } from '../../settings/cache-policies.js';
import { NO_CAPACITIES } from './pool-capacities.js';
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
      const hits = this.intervals.of(start, end);
      distributions.push(distributions.length === 0 ? hits.map((value) => value / this.activatedProbability) : hits);
      start = end;
    }
    const missing = this.intervals.of(start, this.experts);
    const hits = { ...NO_CAPACITIES };
    const spread = (index: number, before: number, left: number): void => {
      const [pool, distribution] = [POOLS[index], distributions[index]];
      if (pool === undefined || distribution === undefined) {
        const probability = before * (missing[left] ?? 0);
        if (probability > 0) visit({ ...hits }, probability);
        return;
      }
      for (let count = 0; count <= left; count += 1) {
        const probability = before * (distribution[count] ?? 0);
        hits[pool] = count;
        if (probability > 0) spread(index + 1, probability, left - count);
      }
    };
    spread(0, 1, this.activated);
  }
}
