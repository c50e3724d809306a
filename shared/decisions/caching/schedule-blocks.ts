import { threadEnds } from './block-timeline.js';
import type { LoadTimes } from './load-times.js';
import { needsPart, type ScheduleBlock, type LoadTask, type Recovery } from './load-task.js';

/** Place of a tensor among all that are loaded together: its schedule block, and its position in it. */
export interface TaskPlace {
  block: number;
  position: number;
}

/**
 * Cache-affinity scheduling (ZipMoE section 3.3, Algorithm 1). Each tensor whose SM-chunk must be read (type I) is overlapped with some of the
 * others (type II): as many as needed until the schedule block waits for decompression (Definition A.1).
 * All decompressions take the same time. So neither the order of those that are ready nor a task's position in its block changes a thread's idle
 * time. The search of lines 13 to 20 therefore ends at the same place for every task: before the type-I tasks and after the type-II tasks that
 * run longer. When no type-I task remains, the remaining type-II tasks form the last schedule block.
 * With recovery 'with', a type-I task cannot be decompressed before its own signs and mantissas are read. Reading its exponents before another
 * task's signs and mantissas gains nothing, so a schedule block has only one type-I task.
 */
export function scheduleBlocks(
  tasks: readonly LoadTask[],
  loadTimes: LoadTimes,
  recovery: Recovery = 'with',
): ScheduleBlock[] {
  const sorted = [...tasks].sort(byExecutionTime);
  const readers = sorted.filter((task) => needsPart(task, 'signMantissa'));
  const others = sorted.filter((task) => !needsPart(task, 'signMantissa'));
  const blocks: ScheduleBlock[] = [];
  let [nextReader, nextOther] = [0, 0];
  while (nextReader < readers.length) {
    const firstReader = nextReader++;
    const firstOther = nextOther;
    const block = (): ScheduleBlock => [
      ...others.slice(firstOther, nextOther),
      ...readers.slice(firstReader, nextReader),
    ];
    while (!isComputeDominant([...blocks, block()], loadTimes, recovery)) {
      if (nextOther < others.length) nextOther += 1;
      else if (nextReader < readers.length && recovery === 'after') nextReader += 1;
      else break;
    }
    blocks.push(block());
  }
  if (nextOther < others.length) blocks.push(others.slice(nextOther));
  return blocks;
}

/** Sorts tensors by their experts' execution time, longest first; the tensors of one expert stay together. */
function byExecutionTime(left: LoadTask, right: LoadTask): number {
  return right.executeMs - left.executeMs || left.expert - right.expert || left.tensor - right.tensor;
}

/**
 * Definition A.1: when the l-th E-chunk of the next schedule block has been read, at most l - 1 threads have been without work, for each l up to
 * min(L, K).
 */
function isComputeDominant(blocks: readonly ScheduleBlock[], loadTimes: LoadTimes, recovery: Recovery): boolean {
  const { threadEndMs, readEndMs } = threadEnds(blocks, loadTimes, recovery);
  const { threads, shards, exponentReadMs } = loadTimes;
  for (let l = 1; l <= Math.min(threads, shards); l += 1) {
    if ((threadEndMs[l - 1] ?? 0) - readEndMs < l * exponentReadMs) return false;
  }
  return true;
}

/** The places of an expert's tensors, by tensor. */
export function taskPlaces(blocks: readonly ScheduleBlock[]): Map<number, TaskPlace[]> {
  const places = new Map<number, TaskPlace[]>();
  for (const [block, tasks] of blocks.entries()) {
    for (const [position, { expert, tensor }] of tasks.entries()) {
      const ofExpert = places.get(expert) ?? [];
      ofExpert[tensor] = { block, position };
      places.set(expert, ofExpert);
    }
  }
  return places;
}
