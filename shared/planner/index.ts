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
export type { ScheduledOperation } from './block-timeline.js';
export { PARTS_IN_MEMORY, type CompressionState, type LoadProfile, type PartlyLoadedState } from './load-profile.js';
export type { LoadBlock, LoadTask, Recovery } from './load-task.js';
export { fifoBlocks, lowerBound } from './schedule-bounds.js';
export { scheduleBlocks, taskPlaces, type TaskPlace } from './schedule-blocks.js';
export { blocksMakespanMs, simulateBlocks, type BlockSchedule } from './simulate-blocks.js';
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
