import type { SimulatedNode } from '../cluster/simulated-node.js';
import { countersOf } from './accounts/main-counters.js';

/** Counts of things that were seen from outside of a cluster. */
export interface Seen {
  /** Passes of main that had rows of several sequences. */
  sharedPasses: number;
  /** Operations of these that failed. */
  brokenSharedPasses: number;
  /** Answers that were cancelled behind their first token. */
  cancelledAnswers: number;
  /** False pieces of packs, and false words about what a node holds of one. */
  falsePieces: number;
  /** From peers, in packs that are fetched. */
  fetchedBytes: number;
}

/** Counts of things that the nodes of a cluster have done. */
export interface Happened extends Seen {
  passes: number;
  preemptions: number;
  /** Tokens of prompts that were not run. */
  cachedTokens: number;
  droppedPrefixes: number;
}

export const NOTHING_HAPPENED: Readonly<Happened> = {
  passes: 0,
  sharedPasses: 0,
  brokenSharedPasses: 0,
  cancelledAnswers: 0,
  falsePieces: 0,
  fetchedBytes: 0,
  preemptions: 0,
  cachedTokens: 0,
  droppedPrefixes: 0,
};

const METRICS = {
  passes: 'odmoe_passes_total',
  preemptions: 'odmoe_preemptions_total',
  cachedTokens: 'odmoe_cached_prompt_tokens_total',
  droppedPrefixes: 'odmoe_dropped_prefixes_total',
} as const;
const HAPPENED = Object.keys(NOTHING_HAPPENED) as (keyof Happened)[];

/** By main's metrics since it was started, nothing where it does not run; and by what was seen. */
export async function happenedAt(main: SimulatedNode | undefined, seen: Seen): Promise<Happened> {
  const counters = await countersOf(main);
  const told = (metric: string): number => counters.get(metric) ?? 0;
  return {
    ...seen,
    passes: told(METRICS.passes),
    preemptions: told(METRICS.preemptions),
    cachedTokens: told(METRICS.cachedTokens),
    droppedPrefixes: told(METRICS.droppedPrefixes),
  };
}

/** Adds to `sum`. */
export function addHappened(sum: Happened, more: Happened): void {
  for (const name of HAPPENED) sum[name] += more[name];
}
