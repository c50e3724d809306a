import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { askCached, type AskedPrompts, type CachedAnswers } from './ask-cached.js';
import { type PoolsMachine, type ComparedPolicy, divideMemory } from './cached-worker.js';
import { cellOf, type PoolsCell } from './pools-figures.js';

/** A machine with the activations of its model. */
export interface TracedMachine {
  machine: PoolsMachine;
  trace: ClusterTrace;
  activations: 'recorded' | 'drawn';
}

export interface PoolsBenchSetting {
  policies: readonly ComparedPolicy[];
  /** Sizes of the cache, as the share of all experts that it can hold in whole form. */
  cachedShares: readonly number[];
  /** Numbers of answers at a time, measured at one share. */
  batches: readonly number[];
  batchShare: number;
  tokens: number;
  answers: number;
  recordedPrompts: number;
  warmPrompts: number;
}

/** Called before each cell is measured, and after the last one. @throws an error with which the caller ends the measurement */
export type PoolsProgress = (done: number, total: number) => void;

/** Number of prompts that a trace must have. */
export function promptsNeeded(setting: PoolsBenchSetting): number {
  const { recordedPrompts, warmPrompts, answers, batches } = setting;
  return recordedPrompts + warmPrompts + Math.max(answers, ...batches);
}

/** Measures every policy at every share, one answer at a time; at one share also several at a time. The answers are the same each time. */
export async function measureAnswers(
  machines: readonly TracedMachine[],
  setting: PoolsBenchSetting,
  onProgress: PoolsProgress,
): Promise<PoolsCell[]> {
  const places = machines.flatMap((traced) => placesOf(setting).map((place) => ({ traced, ...place })));
  // Without a cache, the result does not depend on the memory.
  const cacheless = new Map<string, CachedAnswers>();
  const cells: PoolsCell[] = [];
  for (const [index, { traced, policy, cachedShare, users }] of places.entries()) {
    onProgress(index, places.length);
    const { machine, trace, activations } = traced;
    const memory = divideMemory(machine, cachedShare);
    const key = `${machine.model} ${users}`;
    const known = policy === 'none' ? cacheless.get(key) : undefined;
    const answers = known ?? (await askCached(machine, policy, memory, trace, promptsOf(setting, users)));
    if (policy === 'none') cacheless.set(key, answers);
    const { model } = machine;
    cells.push(cellOf({ model, activations, policy, cachedShare, memoryBytes: memory.memoryBytes, users }, answers));
  }
  onProgress(places.length, places.length);
  return cells;
}

interface Place {
  policy: ComparedPolicy;
  cachedShare: number;
  users: number;
}

function placesOf({ policies, cachedShares, batches, batchShare }: PoolsBenchSetting): Place[] {
  const single = cachedShares.map((cachedShare) => ({ cachedShare, users: 1 }));
  const known = single.some(({ cachedShare }) => cachedShare === batchShare);
  const many = batches
    .filter((users) => users > 1 || (!known && batches.some((other) => other > 1)))
    .map((users) => ({ cachedShare: batchShare, users }));
  return [...single, ...many].flatMap((place) => policies.map((policy) => ({ policy, ...place })));
}

function promptsOf({ recordedPrompts, warmPrompts, answers, tokens }: PoolsBenchSetting, users: number): AskedPrompts {
  const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, index) => from + index);
  return {
    recorded: range(0, recordedPrompts),
    warm: range(recordedPrompts, warmPrompts),
    asked: range(recordedPrompts + warmPrompts, users === 1 ? answers : users),
    atOnce: users,
    tokens,
  };
}
