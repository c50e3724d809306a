import {
  poolsOf,
  type CachePolicy,
  POOLS,
  type Pool,
  type PoolCapacities,
} from '../../shared/settings/cache-policies.js';
import type { EntryNumbers } from './entry-numbers.js';
import { CachedExpert } from './cached-expert.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';

/** Activations of a layer's experts that are remembered, for each expert: beyond it all counts are halved, so that habits may change. */
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

  /** Experts activated more often than this one. */
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
  policy: CachePolicy;
  experts: number;
  toleranceMargin: number;
  random: () => number;
  entries: EntryNumbers;
  /** Called for each expert that loses its place. */
  onEvict: () => void;
}

/** Which experts of one layer are in which pool: dispatch, overflow and eviction. */
export class LayerPools {
  readonly frequencies: FrequencyList;
  private readonly ownKept = new Map<number, CachedExpert>();
  private capacities: PoolCapacities = NO_CAPACITIES;
  /** Of policy popularity: each expert's rank when the layer was first given room. */
  private ranks: ReadonlyMap<number, number> | null = null;
  private arrivals = 0;
  private uses = 0;

  constructor(private readonly setting: LayerPoolsSetting) {
    this.frequencies = new FrequencyList(setting.experts);
  }

  get kept(): readonly CachedExpert[] {
    return [...this.ownKept.values()];
  }

  find(expert: number): CachedExpert | undefined {
    return this.ownKept.get(expert);
  }

  setCapacities(capacities: PoolCapacities): void {
    this.capacities = capacities;
    if (this.setting.policy === 'popularity' && capacities.full > 0) this.ranks ??= this.ranksNow();
    for (const pool of POOLS) {
      while (this.members(pool).length > capacities[pool]) {
        const members = this.members(pool);
        // Those in use keep their entries until released, so that others should go first.
        const victim = this.leastFrequent(members.filter(({ pins }) => pins === 0)) ?? this.leastFrequent(members);
        if (victim !== undefined) this.evict(victim);
      }
    }
  }

  /** Of the whole experts that nobody uses, the one that is used least, and what drops it. */
  leastFrequentIdle(): { frequency: number; evict: () => void } | null {
    const idle = this.members('full').filter(({ pins, holdings }) => pins === 0 && holdings.full.filled);
    const least = this.leastFrequent(idle);
    if (least === undefined) return null;
    return { frequency: this.frequencies.of(least.expert), evict: () => this.evict(least) };
  }

  touch(kept: CachedExpert): void {
    kept.lastUse = ++this.uses;
    kept.marked = true;
  }

  /**
   * Puts an expert that is about to be loaded into the pool where it belongs, evicting there. It stays where it is when no higher
   * pool takes it. Undefined: it is not kept.
   */
  place(expert: number): CachedExpert | undefined {
    const kept = this.find(expert) ?? new CachedExpert(expert, ++this.arrivals);
    const from = kept.pool;
    // Its place is free for whom it displaces.
    kept.pool = null;
    const { policy } = this.setting;
    const usable = poolsOf(policy);
    const pools = usable.length > 1 ? this.poolsByRank(expert, from) : this.isWanted(expert) ? usable : [];
    kept.pool = pools.find((pool) => this.capacities[pool] > 0 && this.makeRoom(pool, kept, from)) ?? null;
    if (kept.pool !== null) this.ownKept.set(expert, kept);
    return this.find(expert);
  }

  /** A load into its full entry did not succeed: it is what its parts make it. */
  fallBack(kept: CachedExpert): void {
    kept.drop('full', this.setting.entries);
    kept.pool = kept.poolOfParts();
    if (kept.pool !== null && this.members(kept.pool).length > this.capacities[kept.pool]) this.evict(kept);
  }

  /** Gives back what it need not hold; forgets it when it has no place. */
  tidy(kept: CachedExpert): void {
    kept.dropSuperfluous(this.setting.entries);
    if (kept.pins > 0 || kept.pool !== null) return;
    this.ownKept.delete(kept.expert);
  }

  /**
   * Pools for which the expert's rank r is below tau_i = sum of S_j over j up to i, plus delta, or that have room left, best first; last the one
   * that it is in, which it does not leave for a lower one.
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

  /** Policy popularity keeps those that were used most when the layer was first given room; the others keep whatever is used. */
  private isWanted(expert: number): boolean {
    if (this.setting.policy !== 'popularity') return true;
    return (this.ranks?.get(expert) ?? Infinity) < this.capacities.full;
  }

  /** Of experts that were used as often as each other the lower number comes first. */
  private ranksNow(): ReadonlyMap<number, number> {
    const frequency = (expert: number): number => this.frequencies.of(expert);
    const byUse = [...Array(this.setting.experts).keys()].sort((left, right) => frequency(right) - frequency(left));
    return new Map(byUse.map((expert, rank) => [expert, rank]));
  }

  private makeRoom(pool: Pool, kept: CachedExpert, from: Pool | null): boolean {
    if (!this.hasRoom(pool, kept.expert)) return false;
    return pool === from || kept.lacking(pool).every((kind) => this.setting.entries.available(kind) > 0);
  }

  /** Whether the pool has a place for the newcomer, one having been evicted if need be. */
  private hasRoom(pool: Pool, newcomer: number): boolean {
    const members = this.members(pool);
    // Entries may have been taken out of use: then a pool is full before it has all that it may have.
    const lacksEntries = pool === 'full' && members.length > 0 && this.setting.entries.available('full') === 0;
    if (members.length < this.capacities[pool] && !lacksEntries) return true;
    const victim = this.victim(members, newcomer);
    if (victim === undefined) return false;
    this.makeWay(victim);
    return true;
  }

  private members(pool: Pool): CachedExpert[] {
    return this.kept.filter((kept) => kept.pool === pool);
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
        // The layer may have had more room once.
        return idle.find(({ expert }) => !this.isWanted(expert));
    }
  }

  /** Any that was not used in this phase; when all were, a new phase begins (Fiat et al., 1991). */
  private unmarked(members: readonly CachedExpert[], idle: readonly CachedExpert[]): CachedExpert | undefined {
    if (idle.every(({ marked }) => marked)) for (const member of members) member.marked = false;
    const candidates = idle.filter(({ marked }) => !marked);
    return candidates[Math.floor(this.setting.random() * candidates.length)];
  }

  private leastFrequent(members: readonly CachedExpert[]): CachedExpert | undefined {
    return leastBy(members, ({ expert }) => this.frequencies.of(expert));
  }

  /** An expert that overflows C may keep its signs and mantissas in S, or its exponents in E, if it is frequent enough there. */
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
