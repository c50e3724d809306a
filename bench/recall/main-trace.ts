import { LocalSequence } from '../../engine/generation/index.js';
import type { Model } from '../../native/index.js';
import { resolveSampling, sampleToken } from '../../shared/sampling/index.js';

/** Rows of one pass of the prompt. */
const PREFILL_ROWS = 256;

const GREEDY = resolveSampling(null, () => 0);

/** What the full-precision model did with one prompt: what a shadow is to predict, and is aligned with. */
export interface MainTrace {
  promptIds: readonly number[];
  /** Token of each decode iteration. */
  tokenIds: number[];
  /** By decode iteration and layer. */
  experts: number[][][];
  /** Holds the keys and values of every position run. Dispose by end(). */
  sequence: LocalSequence;
}

/** Decodes greedily for up to `iterations` iterations; an end-of-sequence token ends it before it is run. */
export async function recordTrace(
  model: Model,
  promptIds: readonly number[],
  iterations: number,
  eosTokenIds: readonly number[],
): Promise<MainTrace> {
  const experts: number[][][] = [];
  const sequence = new LocalSequence(model, model.shape, PREFILL_ROWS, (position, layer, chosen) => {
    if (position < promptIds.length) return;
    (experts[position - promptIds.length] ??= [])[layer] = [...chosen];
  });
  const tokenIds: number[] = [];
  let logits = await sequence.prefill(promptIds);
  while (tokenIds.length < iterations) {
    const tokenId = sampleToken(logits, [], promptIds.length + tokenIds.length, GREEDY);
    if (eosTokenIds.includes(tokenId)) break;
    tokenIds.push(tokenId);
    logits = await sequence.decode(tokenId);
  }
  return { promptIds, tokenIds, experts, sequence };
}
