/** The pools that cache something, in the order of the hierarchy F, C, S, E (ZipMoE section 3.4). */
export const POOLS = ['full', 'compressed', 'signMantissa', 'exponent'] as const;
export type Pool = (typeof POOLS)[number];

/** Most experts in each pool. */
export type PoolCapacities = Readonly<Record<Pool, number>>;

/** The rule by which a worker chooses the experts in its cache. */
export const CACHE_POLICIES = ['planned', 'lru', 'fifo', 'marking', 'popularity', 'residency'] as const;
export type CachePolicy = (typeof CACHE_POLICIES)[number];

/** Pools that a policy uses. */
export function poolsOf(policy: CachePolicy): readonly Pool[] {
  if (policy === 'planned') return POOLS;
  return policy === 'residency' ? ['full', 'compressed'] : ['full'];
}
