import { threadEnds } from './block-timeline.js';
import type { LoadTimes } from './load-times.js';
import { needsSignMantissa, type LoadBlock, type LoadTask, type Recovery } from './load-task.js';

/** Place of a tensor among all that are loaded together: blocks in order, and in a block by position. */
export interface TaskPlace {
  block: number;
  position: number;
}

/**
 * Cache-affinity scheduling (ZipMoE section 3.3, Algorithm 1). Tensors whose SM-chunks must be read (type I) are each overlapped with
 * as many of the others (type II) as it takes until decompression is what the block waits for (Definition A.1).
 *
 * Decompressions all take the same time, so which of those that are ready runs first changes no thread's idle time, and nor does a
 * task's position in its block: the search of lines 13 to 20 ends at the same place for every task, before the type-I tasks and
 * after the type-II tasks that run longer. What is left of the type-II tasks when no type-I task remains is the last block.
 *
 * With recovery 'with', a type-I task gains nothing from its exponents being read before another one's signs and mantissas, as it
 * cannot be decompressed earlier for that; a block then has only one.
 */
export function scheduleBlocks(
  tasks: readonly LoadTask[],
  profile: LoadTimes,
  recovery: Recovery = 'with',
): LoadBlock[] {
  const sorted = [...tasks].sort(byExecutionTime);
  const readers = sorted.filter(needsSignMantissa);
  const others = sorted.filter((task) => !needsSignMantissa(task));
  const blocks: LoadBlock[] = [];
  let [nextReader, nextOther] = [0, 0];
  while (nextReader < readers.length) {
    const firstReader = nextReader++;
    const firstOther = nextOther;
    const block = (): LoadBlock => [...others.slice(firstOther, nextOther), ...readers.slice(firstReader, nextReader)];
    while (!isComputeDominant([...blocks, block()], profile, recovery)) {
      if (nextOther < others.length) nextOther += 1;
      else if (nextReader < readers.length && recovery === 'after') nextReader += 1;
      else break;
    }
    blocks.push(block());
  }
  if (nextOther < others.length) blocks.push(others.slice(nextOther));
  return blocks;
}

/** Tensors of the experts that take longest first, an expert's together. */
function byExecutionTime(left: LoadTask, right: LoadTask): number {
  return right.executeMs - left.executeMs || left.expert - right.expert || left.tensor - right.tensor;
}

/**
 * Definition A.1: when the l-th of the next block's E-chunks has been read, no more than l - 1 threads have been without work, for each l
 * up to min(L, K).
 */
function isComputeDominant(blocks: readonly LoadBlock[], profile: LoadTimes, recovery: Recovery): boolean {
  const { threadEndMs, readEndMs } = threadEnds(blocks, profile, recovery);
  const { threads, shards, exponentReadMs } = profile;
  for (let l = 1; l <= Math.min(threads, shards); l += 1) {
    if ((threadEndMs[l - 1] ?? 0) - readEndMs < l * exponentReadMs) return false;
  }
  return true;
}

/** The places of an expert's tensors, by tensor. */
export function taskPlaces(blocks: readonly LoadBlock[]): Map<number, TaskPlace[]> {
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
