export { ActivationCounts, parseActivationCounts } from './activation-counts.js';
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
export { ExpectedMakespan } from './expected-makespan.js';
export { hitDistribution } from './hit-distribution.js';
export {
  estimateMakespan,
  NO_OVERLAP_COSTS,
  patternMakespans,
  type HitPattern,
  type OverlapCosts,
  type PatternMakespan,
} from './makespan-estimate.js';
export { planPools, type EntryBytes, type PlanRequest, type PoolPlan, type PoolPlans } from './plan-pools.js';
export {
  assumedInclusionProbabilities,
  fitSelectionProbabilities,
  inclusionGiven,
  inclusionProbabilities,
} from './selection-model.js';
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
