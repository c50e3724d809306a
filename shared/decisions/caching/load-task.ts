import type { LoadTimes, PartlyLoadedState } from './load-times.js';
import { PARTS_IN_MEMORY } from './load-times.js';

/** One tensor that is to be reconstructed (ZipMoE section 3.3: a task). An expert's tensors are tasks of one state and execution time. */
export interface LoadTask {
  /** Names the expert among all that are reconstructed together. */
  expert: number;
  /** Which of the expert's tensors. */
  tensor: number;
  state: PartlyLoadedState;
  /** p_n: running the expert on all rows that wait for it. */
  executeMs: number;
}

/** Tasks that are read together, exponents before signs and mantissas; in order of priority. */
export type LoadBlock = readonly LoadTask[];

/**
 * When a tensor's weights are put together. 'after' its decompression, by another processor (the paper's): decompressing takes
 * the E-chunk alone. 'with' it, in one operation on one thread (this loader's): it takes the shard's signs and mantissas, too.
 */
export type Recovery = 'after' | 'with';

export function needsExponents(task: LoadTask): boolean {
  return !PARTS_IN_MEMORY[task.state].exponents;
}

/** Type I of section 3.3: its SM-chunk must be read. */
export function needsSignMantissa(task: LoadTask): boolean {
  return !PARTS_IN_MEMORY[task.state].signMantissa;
}

/** v_j of Lemma B.3. */
export function readMs(task: LoadTask, profile: LoadTimes): number {
  const exponentsMs = needsExponents(task) ? profile.shards * profile.exponentReadMs : 0;
  return exponentsMs + (needsSignMantissa(task) ? profile.signMantissaReadMs : 0);
}

/** Execution time of each expert once. */
export function executionTimes(tasks: readonly LoadTask[]): Map<number, number> {
  return new Map(tasks.map(({ expert, executeMs }) => [expert, executeMs]));
}
