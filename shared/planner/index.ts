export {
  CACHE_POLICIES,
  type CacheCounters,
  type CacheDecisions,
  type CachePolicy,
  type CachePoolsOptions,
  type CacheUse,
  type KeptPart,
  type PlacedExpert,
  type Readiness,
  type UseLoaded,
} from './cache-decisions.js';
export { CachePools } from './cache-pools.js';
export { PARTS_IN_MEMORY, type CompressionState, type LoadProfile } from './load-profile.js';
export {
  addCapacities,
  checkCapacities,
  entriesOf,
  NO_CAPACITIES,
  POOLS,
  spreadCapacities,
  type CacheEntries,
  type Pool,
  type PoolCapacities,
} from './pool-capacities.js';
