/** The pools that keep something, in the order of the hierarchy F, C, S, E (ZipMoE section 3.4). */
export const POOLS = ['full', 'compressed', 'signMantissa', 'exponent'] as const;
export type Pool = (typeof POOLS)[number];

/** Experts that each pool holds. */
export type PoolCapacities = Readonly<Record<Pool, number>>;

/** How a worker chooses the experts that its cache holds. */
export const CACHE_POLICIES = ['planned', 'lru', 'fifo', 'marking', 'popularity', 'residency'] as const;
export type CachePolicy = (typeof CACHE_POLICIES)[number];

/** Pools that a policy uses. */
export function poolsOf(policy: CachePolicy): readonly Pool[] {
  if (policy === 'planned') return POOLS;
  return policy === 'residency' ? ['full', 'compressed'] : ['full'];
}
