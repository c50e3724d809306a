/** The pools that cache something, in the order of the hierarchy F, C, S, E (ZipMoE section 3.4). */
export const POOLS = ['full', 'compressed', 'signMantissa', 'exponent'] as const;
export type Pool = (typeof POOLS)[number];

/** Most experts in each pool. */
export type PoolCapacities = Readonly<Record<Pool, number>>;

/** The rule by which a worker chooses the experts in its cache, where experts are as they were shipped. */
export const EXPERT_POLICIES = ['planned', 'lru', 'fifo', 'marking', 'popularity', 'residency'] as const;
export type ExpertPolicy = (typeof EXPERT_POLICIES)[number];

/** Sliced experts have one rule of their own. */
export const CACHE_POLICIES = [...EXPERT_POLICIES, 'sliced'] as const;
export type CachePolicy = (typeof CACHE_POLICIES)[number];

/** Pools that a policy uses. */
export function poolsOf(policy: CachePolicy): readonly Pool[] {
  if (policy === 'planned') return POOLS;
  return policy === 'residency' ? ['full', 'compressed'] : ['full'];
}
