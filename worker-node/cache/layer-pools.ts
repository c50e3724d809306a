import {
  poolsOf,
  type ExpertPolicy,
  POOLS,
  type Pool,
  type PoolCapacities,
} from '../../shared/settings/cache-policies.js';
import type { EntryNumbers } from './entry-numbers.js';
import { CachedExpert } from './cached-expert.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';

/** Activations that the list remembers per expert of the layer. Above this total all counts are halved, so that the list follows new habits. */
const REMEMBERED_ACTIVATIONS = 128;

/** The runtime frequency list of one layer (ZipMoE section 3.4): how often each expert was activated lately. */
class FrequencyList {
  private readonly counts: Float64Array;
  private total = 0;

  constructor(experts: number) {
    this.counts = new Float64Array(experts);
  }

  add(expert: number, activations: number): void {
    this.counts[expert] = this.of(expert) + activations;
    this.total += activations;
    const limit = REMEMBERED_ACTIVATIONS * this.counts.length;
    let factor = 1;
    while (this.total * factor > limit) factor /= 2;
    if (factor < 1) this.scale(factor);
  }

  /** Adds earlier counts with at most half the weight that the list can remember. */
  seed(counts: ArrayLike<number>): void {
    let total = 0;
    for (let expert = 0; expert < this.counts.length; expert += 1) total += counts[expert] ?? 0;
    const scale = Math.min(1, (REMEMBERED_ACTIVATIONS * this.counts.length) / 2 / total);
    for (let expert = 0; expert < this.counts.length; expert += 1) this.add(expert, (counts[expert] ?? 0) * scale);
  }

  of(expert: number): number {
    return this.counts[expert] ?? 0;
  }

  /** The number of experts that were activated more often than this one. */
  rank(expert: number): number {
    const own = this.of(expert);
    let rank = 0;
    for (const count of this.counts) if (count > own) rank += 1;
    return rank;
  }

  private scale(factor: number): void {
    for (let expert = 0; expert < this.counts.length; expert += 1) this.counts[expert] = this.of(expert) * factor;
    this.total *= factor;
  }
}

export interface LayerPoolsSetting {
  policy: ExpertPolicy;
  experts: number;
  toleranceMargin: number;
  random: () => number;
  entries: EntryNumbers;
  /** Called for each expert that loses its place. */
  onEvict: () => void;
}

/** Assigns the experts of one layer to pools: dispatch, overflow and eviction. */
export class LayerPools {
  readonly frequencies: FrequencyList;
  private readonly cachedExperts = new Map<number, CachedExpert>();
  private capacities: PoolCapacities = NO_CAPACITIES;
  /** For the policy popularity: each expert's rank when the layer first got capacity. */
  private ranks: ReadonlyMap<number, number> | null = null;
  private arrivals = 0;
  private uses = 0;

  constructor(private readonly setting: LayerPoolsSetting) {
    this.frequencies = new FrequencyList(setting.experts);
  }

  get cached(): readonly CachedExpert[] {
    return [...this.cachedExperts.values()];
  }

  find(expert: number): CachedExpert | undefined {
    return this.cachedExperts.get(expert);
  }

  setCapacities(capacities: PoolCapacities): void {
    this.capacities = capacities;
    if (this.setting.policy === 'popularity' && capacities.full > 0) this.ranks ??= this.ranksNow();
    for (const pool of POOLS) {
      while (this.members(pool).length > capacities[pool]) {
        const members = this.members(pool);
        // Experts in use keep their entries until released, so evict the others first.
        const victim = this.leastFrequent(members.filter(({ pins }) => pins === 0)) ?? this.leastFrequent(members);
        if (victim !== undefined) this.evict(victim);
      }
    }
  }

  /** The least used full expert that no use holds, and a function that evicts it. */
  leastFrequentIdle(): { frequency: number; evict: () => void } | null {
    const idle = this.members('full').filter(({ pins, holdings }) => pins === 0 && holdings.full.filled);
    const least = this.leastFrequent(idle);
    if (least === undefined) return null;
    return { frequency: this.frequencies.of(least.expert), evict: () => this.evict(least) };
  }

  touch(cached: CachedExpert): void {
    cached.lastUse = ++this.uses;
    cached.marked = true;
  }

  /**
   * Puts an expert that is about to be loaded into the right pool and evicts another expert there if necessary. The expert stays in its pool
   * when no higher pool takes it. Undefined: it is not cached.
   */
  place(expert: number): CachedExpert | undefined {
    const cached = this.find(expert) ?? new CachedExpert(expert, ++this.arrivals);
    const from = cached.pool;
    // A displaced expert may take the place that this one leaves.
    cached.pool = null;
    const { policy } = this.setting;
    const usable = poolsOf(policy);
    const pools = usable.length > 1 ? this.poolsByRank(expert, from) : this.isWanted(expert) ? usable : [];
    cached.pool = pools.find((pool) => this.capacities[pool] > 0 && this.makeRoom(pool, cached, from)) ?? null;
    if (cached.pool !== null) this.cachedExperts.set(expert, cached);
    return this.find(expert);
  }

  /** The load into the full entry failed: the expert goes to the pool that fits its complete parts. */
  fallBack(cached: CachedExpert): void {
    cached.drop('full', this.setting.entries);
    cached.pool = cached.poolOfParts();
    if (cached.pool !== null && this.members(cached.pool).length > this.capacities[cached.pool]) this.evict(cached);
  }

  /** Gives back entries that the expert need not hold; forgets the expert when it has no place and no use. */
  tidy(cached: CachedExpert): void {
    cached.dropSuperfluous(this.setting.entries);
    if (cached.pins > 0 || cached.pool !== null) return;
    this.cachedExperts.delete(cached.expert);
  }

  /**
   * The pools that may take the expert, best first: pools that have room, or for which its rank r is below tau_i = sum of S_j over j up to i,
   * plus delta. The pool that it is in comes last, because it does not leave that pool for a lower one.
   */
  private poolsByRank(expert: number, from: Pool | null): Pool[] {
    const rank = this.frequencies.rank(expert);
    let threshold = this.setting.toleranceMargin;
    const dispatched = poolsOf(this.setting.policy).filter((pool) => {
      threshold += this.capacities[pool];
      return rank < threshold || this.members(pool).length < this.capacities[pool];
    });
    if (from === null) return dispatched;
    return [...dispatched.filter((pool) => POOLS.indexOf(pool) < POOLS.indexOf(from)), from];
  }

  /** The policy popularity caches the experts that were used most when the layer first got capacity; the other policies cache every used expert. */
  private isWanted(expert: number): boolean {
    if (this.setting.policy !== 'popularity') return true;
    return (this.ranks?.get(expert) ?? Infinity) < this.capacities.full;
  }

  /** Among experts with equal use, the lower number comes first. */
  private ranksNow(): ReadonlyMap<number, number> {
    const frequency = (expert: number): number => this.frequencies.of(expert);
    const byUse = [...Array(this.setting.experts).keys()].sort((left, right) => frequency(right) - frequency(left));
    return new Map(byUse.map((expert, rank) => [expert, rank]));
  }

  private makeRoom(pool: Pool, cached: CachedExpert, from: Pool | null): boolean {
    if (!this.hasRoom(pool, cached.expert)) return false;
    return pool === from || cached.lacking(pool).every((kind) => this.setting.entries.available(kind) > 0);
  }

  /** True if the pool has a place for the newcomer; evicts an expert for it if necessary. */
  private hasRoom(pool: Pool, newcomer: number): boolean {
    const members = this.members(pool);
    // Some entries may have been taken out of use: then a pool is full before it reaches its capacity.
    const lacksEntries = pool === 'full' && members.length > 0 && this.setting.entries.available('full') === 0;
    if (members.length < this.capacities[pool] && !lacksEntries) return true;
    const victim = this.victim(members, newcomer);
    if (victim === undefined) return false;
    this.makeWay(victim);
    return true;
  }

  private members(pool: Pool): CachedExpert[] {
    return this.cached.filter((cached) => cached.pool === pool);
  }

  private victim(members: readonly CachedExpert[], newcomer: number): CachedExpert | undefined {
    const idle = members.filter(({ pins }) => pins === 0);
    switch (this.setting.policy) {
      case 'planned':
      case 'residency': {
        const least = this.leastFrequent(idle);
        const isRarer = least !== undefined && this.frequencies.of(least.expert) < this.frequencies.of(newcomer);
        return isRarer ? least : undefined;
      }
      case 'lru':
        return leastBy(idle, ({ lastUse }) => lastUse);
      case 'fifo':
        return leastBy(idle, ({ arrival }) => arrival);
      case 'marking':
        return this.unmarked(members, idle);
      case 'popularity':
        // The layer may have had a larger capacity before.
        return idle.find(({ expert }) => !this.isWanted(expert));
    }
  }

  /** Any expert that was not used in this phase; when all were used, a new phase begins (Fiat et al., 1991). */
  private unmarked(members: readonly CachedExpert[], idle: readonly CachedExpert[]): CachedExpert | undefined {
    if (idle.every(({ marked }) => marked)) for (const member of members) member.marked = false;
    const candidates = idle.filter(({ marked }) => !marked);
    return candidates[Math.floor(this.setting.random() * candidates.length)];
  }

  private leastFrequent(members: readonly CachedExpert[]): CachedExpert | undefined {
    return leastBy(members, ({ expert }) => this.frequencies.of(expert));
  }

  /** An expert that overflows C may keep its signs and mantissas in S, or its exponents in E, if it is used often enough there. */
  private makeWay(victim: CachedExpert): void {
    const lower: readonly Pool[] = victim.pool === 'compressed' ? ['signMantissa', 'exponent'] : [];
    for (const pool of lower) {
      if (
        !poolsOf(this.setting.policy).includes(pool) ||
        this.capacities[pool] === 0 ||
        !this.hasRoom(pool, victim.expert)
      )
        continue;
      victim.pool = pool;
      this.tidy(victim);
      return;
    }
    this.evict(victim);
  }

  private evict(victim: CachedExpert): void {
    victim.pool = null;
    this.setting.onEvict();
    this.tidy(victim);
  }
}

function leastBy(members: readonly CachedExpert[], figure: (member: CachedExpert) => number): CachedExpert | undefined {
  return members.reduce<CachedExpert | undefined>(
    (least, member) => (least === undefined || figure(member) < figure(least) ? member : least),
    undefined,
  );
}
