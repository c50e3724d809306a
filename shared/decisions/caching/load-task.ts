import type { LoadTimes, PartlyLoadedState } from './load-times.js';
import { isInMemory } from './load-times.js';
import type { Part } from '../../model/expert-parts.js';

/** One tensor to reconstruct (ZipMoE section 3.3: a task). An expert's tensors are tasks with the same state and execution time. */
export interface LoadTask {
  /** Identifies the expert among all that are reconstructed together. */
  expert: number;
  /** Index of the tensor within the expert. */
  tensor: number;
  state: PartlyLoadedState;
  /** p_n: time to run the expert on all rows that wait for it. */
  executeMs: number;
}

/** Tasks that are read together, in order of priority. Exponents are read before signs and mantissas. */
export type ScheduleBlock = readonly LoadTask[];

/**
 * When a tensor's weights are recombined. 'after': after its decompression, by another processor (as in the paper); a decompression then needs
 * the E-chunk alone. 'with': during the decompression, in one operation on one thread (as in this loader); it then needs the shard's signs and
 * mantissas, too.
 */
export type Recovery = 'after' | 'with';

/** The part must be read. Tasks of type I in section 3.3 need their signs and mantissas. */
export function needsPart(task: LoadTask, part: Part): boolean {
  return !isInMemory(task.state, part);
}

/** v_j of Lemma B.3: read time of the task. */
export function readMs(task: LoadTask, loadTimes: LoadTimes): number {
  const exponentsMs = needsPart(task, 'exponent') ? loadTimes.shards * loadTimes.exponentReadMs : 0;
  return exponentsMs + (needsPart(task, 'signMantissa') ? loadTimes.signMantissaReadMs : 0);
}

/** Execution time of each expert, one entry an expert. */
export function executionTimes(tasks: readonly LoadTask[]): Map<number, number> {
  return new Map(tasks.map(({ expert, executeMs }) => [expert, executeMs]));
}
