import { blocksMakespanMs } from '../../shared/decisions/caching/simulate-blocks.js';
import { fifoBlocks, lowerBound } from '../zipmoe/schedule-bounds.js';
import { scheduleBlocks } from '../../shared/decisions/caching/schedule-blocks.js';
import { PARTLY_LOADED_STATES, type LoadTimes } from '../../shared/decisions/caching/load-times.js';
import type { LoadTask, Recovery } from '../../shared/decisions/caching/load-task.js';
import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';

export interface ScheduleBenchSetting {
  instances: number;
  /** Experts of the largest instance. */
  experts: number;
  seed: number;
}

/** Figures of all instances of one kind. Ratios are ratios of makespans. */
export interface ScheduleBenchResult {
  recovery: Recovery;
  instances: number;
  /** Ratio to Lemma B.3's bound; no schedule is below it. */
  toBoundMean: number;
  toBoundWorst: number;
  /** The largest ratio to the guarantee of Theorem 3.1, which is (3 - 1/L) times that bound. */
  ofGuaranteeWorst: number;
  /** Ratio to FIFO order, the largest such ratio, and the share of instances in which FIFO was faster. */
  toFifoMean: number;
  toFifoWorst: number;
  fifoFasterShare: number;
  /** Mean time to make one schedule. */
  scheduleMs: number;
}

const TENSORS = 3;
/** The shortest random time, relative to the longest possible one. */
const SHORTEST = 0.02;

/** Random instances: from 2 experts to the most, each with a random state and execution time; 1 to 8 threads, 1 to 8 shards. */
export function measureSchedules(setting: ScheduleBenchSetting, nowMs: () => number): ScheduleBenchResult[] {
  return (['after', 'with'] as const).map((recovery) => measureRecovery(recovery, setting, nowMs));
}

function measureRecovery(
  recovery: Recovery,
  { instances, experts, seed }: ScheduleBenchSetting,
  nowMs: () => number,
): ScheduleBenchResult {
  const result: ScheduleBenchResult = {
    recovery,
    instances,
    toBoundMean: 0,
    toBoundWorst: 0,
    ofGuaranteeWorst: 0,
    toFifoMean: 0,
    toFifoWorst: 0,
    fifoFasterShare: 0,
    scheduleMs: 0,
  };
  for (let instance = 0; instance < instances; instance += 1) {
    const { tasks, profile } = randomInstance(seed, instance, experts);
    const startMs = nowMs();
    const blocks = scheduleBlocks(tasks, profile, recovery);
    result.scheduleMs += (nowMs() - startMs) / instances;
    const makespanMs = blocksMakespanMs(blocks, profile, recovery);
    const toBound = makespanMs / lowerBound(tasks, profile);
    const toFifo = makespanMs / blocksMakespanMs(fifoBlocks(tasks), profile, recovery);
    result.toBoundMean += toBound / instances;
    result.toBoundWorst = Math.max(result.toBoundWorst, toBound);
    result.ofGuaranteeWorst = Math.max(result.ofGuaranteeWorst, toBound / (3 - 1 / profile.threads));
    result.toFifoMean += toFifo / instances;
    result.toFifoWorst = Math.max(result.toFifoWorst, toFifo);
    if (toFifo > 1 + 1e-9) result.fifoFasterShare += 1 / instances;
  }
  return result;
}

function randomInstance(
  seed: number,
  instance: number,
  mostExperts: number,
): { tasks: LoadTask[]; profile: LoadTimes } {
  let draws = instance * (2 * mostExperts + 16);
  const random = (): number => counterRandom(seed, draws++);
  const upTo = (most: number): number => 1 + Math.floor(random() * most);
  const duration = (): number => SHORTEST + (1 - SHORTEST) * random();
  const [threads, shards] = [upTo(8), upTo(8)];
  const signMantissaReadMs = duration();
  const compressionRatio = 0.2 + 0.8 * random();
  const profile: LoadTimes = {
    signMantissaReadMs,
    compressionRatio,
    threads,
    shards,
    tensors: TENSORS,
    exponentReadMs: (compressionRatio * signMantissaReadMs) / shards,
    decompressMs: (2 * threads * duration()) / shards,
  };
  const experts = 1 + upTo(mostExperts - 1);
  const tasks: LoadTask[] = [];
  for (let expert = 0; expert < experts; expert += 1) {
    const state = PARTLY_LOADED_STATES[Math.floor(random() * PARTLY_LOADED_STATES.length)] ?? 'missing';
    const executeMs = TENSORS * duration();
    for (let tensor = 0; tensor < TENSORS; tensor += 1) tasks.push({ expert, tensor, state, executeMs });
  }
  return { tasks, profile };
}
