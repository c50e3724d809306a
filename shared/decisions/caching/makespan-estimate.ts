import { POOLS, type PoolCapacities } from '../../settings/cache-policies.js';
import type { CompressionState, LoadTimes } from './load-times.js';
import type { LoadTask } from './load-task.js';
import type { Part } from '../../model/expert-parts.js';
import { sumOfPools } from './pool-capacities.js';
import { scheduleBlocks } from './schedule-blocks.js';
import { blocksMakespanMs } from './simulate-blocks.js';

/** Number of a layer's activated experts in each pool. */
export type HitPattern = PoolCapacities;

/** Expected time of a layer whose activated experts are spread over the pools as the pattern says. */
export type PatternMakespan = (hits: HitPattern) => number;

/** Costs of a layer in addition to reading and decompressing, and costs of the overlap of the two. */
export interface OverlapCosts {
  /** p_n of every expert. */
  executeMs: number;
  /** Cost that is paid once if anything is loaded: the request, the wake-up of threads, the report. */
  startMs: number;
  /** Extra time of reading and decompression when they overlap, as a share of the shorter of the two; 0 if they do not slow each other down. */
  interference: number;
}

/** Most patterns whose schedules are simulated. If there are more, they are estimated. */
const SIMULATED_PATTERNS = 2000;

/**
 * Makespan of a layer without its executions (ZipMoE Algorithm 3): all reading, or all decompression over L threads, whichever is longer. An
 * operation whose E-chunk must be read includes that read in its time.
 */
export function estimateMakespan(activated: number, hits: HitPattern, loadTimes: LoadTimes): number {
  const { readingMs, exponentsMs, decompressingMs } = workOf(activated, hits, loadTimes);
  return Math.max(readingMs, decompressingMs + exponentsMs / loadTimes.threads);
}

/** Time of all reads, time of the reads of exponents among them, and time of all decompressions over the threads. */
function workOf(
  activated: number,
  hits: HitPattern,
  { tensors, shards, threads, signMantissaReadMs, exponentReadMs, decompressMs }: LoadTimes,
): { readingMs: number; exponentsMs: number; decompressingMs: number } {
  const lacking = (part: Part): number => activated - hits.full - hits.compressed - hits[part];
  const exponentsMs = tensors * shards * lacking('exponent') * exponentReadMs;
  const readingMs = tensors * lacking('signMantissa') * signMantissaReadMs + exponentsMs;
  const decompressingMs = (tensors * shards * (activated - hits.full) * decompressMs) / threads;
  return { readingMs, exponentsMs, decompressingMs };
}

/**
 * Makespan of each pattern: by simulation of its schedule, or, if there are too many patterns, by Algorithm 3 plus the executions. Each pattern
 * is computed once, because its makespan, unlike its probability, does not depend on the plan.
 */
export function patternMakespans(activated: number, loadTimes: LoadTimes, costs: OverlapCosts): PatternMakespan {
  const known = new Map<number, number>();
  const isSimulated = patternCount(activated) <= SIMULATED_PATTERNS;
  const { executeMs, startMs, interference } = costs;
  return (hits) => {
    const key = POOLS.reduce((number, pool) => number * (activated + 1) + hits[pool], 0);
    let makespanMs = known.get(key);
    if (makespanMs === undefined) {
      const { readingMs, decompressingMs } = workOf(activated, hits, loadTimes);
      const alone = isSimulated
        ? simulatedMakespan(activated, hits, loadTimes, executeMs)
        : estimateMakespan(activated, hits, loadTimes) + executeMs;
      const startedMs = hits.full < activated ? startMs : 0;
      makespanMs = alone + startedMs + interference * Math.min(readingMs, decompressingMs);
      known.set(key, makespanMs);
    }
    return makespanMs;
  };
}

/** Number of ways to spread k activated experts over the four pools and the rest: k + 4 over 4. */
function patternCount(activated: number): number {
  return [1, 2, 3, 4].reduce((product, i) => (product * (activated + i)) / i, 1);
}

function simulatedMakespan(activated: number, hits: HitPattern, loadTimes: LoadTimes, executeMs: number): number {
  const missing = activated - sumOfPools((pool) => hits[pool]);
  const states: readonly (readonly [CompressionState, number])[] = [
    ...POOLS.map((pool) => [pool, hits[pool]] as const),
    ['missing', missing],
  ];
  const tasks: LoadTask[] = [];
  let expert = 0;
  for (const [state, count] of states) {
    if (state === 'full') continue;
    for (let each = 0; each < count; each += 1, expert += 1) {
      for (let tensor = 0; tensor < loadTimes.tensors; tensor += 1) tasks.push({ expert, tensor, state, executeMs });
    }
  }
  // Full experts run while the others are loaded.
  const loadedMs = blocksMakespanMs(scheduleBlocks(tasks, loadTimes), loadTimes);
  return Math.max(loadedMs, activated * executeMs);
}
