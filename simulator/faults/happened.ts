import type { SimulatedNode } from '../cluster/simulated-node.js';

/** What a main has done. */
export interface Happened {
  passes: number;
  /** Of these, passes of several sequences. */
  sharedPasses: number;
  preemptions: number;
  /** Tokens of prompts that were not run. */
  cachedTokens: number;
  droppedPrefixes: number;
}

export const NOTHING_HAPPENED: Readonly<Happened> = {
  ...{ passes: 0, sharedPasses: 0, preemptions: 0, cachedTokens: 0, droppedPrefixes: 0 },
};

const METRICS = {
  passes: 'odmoe_passes_total',
  preemptions: 'odmoe_preemptions_total',
  cachedTokens: 'odmoe_cached_prompt_tokens_total',
  droppedPrefixes: 'odmoe_dropped_prefixes_total',
} as const;
const HAPPENED = Object.keys(NOTHING_HAPPENED) as (keyof Happened)[];

/** By its metrics, since it was started; nothing where it does not run. `sharedPasses`: that its devices have seen. */
export async function happenedAt(main: SimulatedNode | undefined, sharedPasses: number): Promise<Happened> {
  const text = main?.isReady === true ? await main.metrics() : '';
  const lines = new Map(text.split('\n').map((line) => [line.split(' ')[0] ?? '', line.split(' ')[1] ?? '']));
  const told = (metric: string): number => Number(lines.get(metric) ?? 0);
  return {
    sharedPasses,
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
