import type { SimulatedNode } from '../cluster/simulated-node.js';
import { NO_TRUST_EVENTS, type TrustEvents } from './trust-faults.js';
import { countersOf } from './accounts/main-counters.js';

/** Counts of events that were seen from outside of a cluster. */
export interface Seen extends TrustEvents {
  /** Passes of main with rows of several sequences. */
  sharedPasses: number;
  /** Failed operations of these passes. */
  brokenSharedPasses: number;
  /** Answers that were cancelled after their first token. */
  cancelledAnswers: number;
  /** False pack pieces, and false reports about the parts of a pack that a node has. */
  falsePieces: number;
  /** Bytes from peers, for packs that are fetched. */
  fetchedBytes: number;
  /** Executes by which workers run the experts of the model's own head. */
  headExecutes: number;
  /** Times that main said that a drained node may go. */
  mayGo: number;
}

/** Counts of events of a cluster and its nodes. */
export interface Happened extends Seen {
  passes: number;
  preemptions: number;
  /** Tokens of prompts that did not have to run. */
  cachedTokens: number;
  droppedPrefixes: number;
  /** Tokens of prompts whose rows came from main's disk. */
  storedTokens: number;
}

export const NOTHING_HAPPENED: Readonly<Happened> = {
  passes: 0,
  sharedPasses: 0,
  brokenSharedPasses: 0,
  cancelledAnswers: 0,
  falsePieces: 0,
  fetchedBytes: 0,
  headExecutes: 0,
  mayGo: 0,
  preemptions: 0,
  cachedTokens: 0,
  droppedPrefixes: 0,
  storedTokens: 0,
  ...NO_TRUST_EVENTS,
};

const METRICS = {
  passes: 'odmoe_passes_total',
  preemptions: 'odmoe_preemptions_total',
  cachedTokens: 'odmoe_cached_prompt_tokens_total',
  droppedPrefixes: 'odmoe_dropped_prefixes_total',
  storedTokens: 'odmoe_prefix_store_tokens_total',
} as const;
const HAPPENED = Object.keys(NOTHING_HAPPENED) as (keyof Happened)[];

/** Counts from main's metrics since its start (0 if it does not run) and from the given observations. */
export async function happenedAt(main: SimulatedNode | undefined, seen: Seen): Promise<Happened> {
  const counters = await countersOf(main);
  const counterOf = (metric: string): number => counters.get(metric) ?? 0;
  return {
    ...seen,
    passes: counterOf(METRICS.passes),
    preemptions: counterOf(METRICS.preemptions),
    cachedTokens: counterOf(METRICS.cachedTokens),
    droppedPrefixes: counterOf(METRICS.droppedPrefixes),
    storedTokens: counterOf(METRICS.storedTokens),
  };
}

/** Adds `more` to `sum`. */
export function addHappened(sum: Happened, more: Happened): void {
  for (const name of HAPPENED) sum[name] += more[name];
}
