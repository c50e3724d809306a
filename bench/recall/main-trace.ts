import {
  LocalSequence,
  RESIDENT_EXPERTS_WITH_SCORES,
  type ExpertObserver,
} from '../../engine/generation/local-runner.js';
import type { Model } from '../../native/index.js';
import { TokenSampler } from '../../engine/sampling/token-sampler.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';

/** Rows of one pass of the prompt. */
const PREFILL_ROWS = 256;

/** A record of the full-precision model on one prompt. A shadow predicts it and is aligned with it. */
export interface MainTrace {
  promptIds: readonly number[];
  /** Token of each decode iteration. */
  tokenIds: number[];
  /** Experts by position, from the prompt's first position, and by layer. */
  activated: number[][][];
  /** The scores of all experts, by position and layer; empty unless they were asked for. */
  scores: Float32Array[][];
  /** The keys and values of every position that ran. Dispose of it by end(). */
  sequence: LocalSequence;
}

export interface TraceOptions {
  /** Most decode iterations; fewer if the model's positions end. */
  iterations: number;
  sampling: SamplingOptions;
  /** Tokens that end the answer before they are run; empty if it must continue after its end. */
  endTokenIds: readonly number[];
  /** Records the scores of all experts, too; left out: no. Routers must have them. */
  withScores?: boolean;
}

/** Runs the full-precision model on the prompt. */
export async function recordTrace(
  model: Model,
  promptIds: readonly number[],
  { iterations, sampling, endTokenIds, withScores = false }: TraceOptions,
): Promise<MainTrace> {
  const activated: number[][][] = [];
  const scores: Float32Array[][] = [];
  const observe: ExpertObserver = (position, layer, chosen, ofAll) => {
    (activated[position] ??= [])[layer] = [...chosen];
    if (ofAll !== undefined) (scores[position] ??= [])[layer] = ofAll;
  };
  const experts = withScores ? RESIDENT_EXPERTS_WITH_SCORES : undefined;
  const sequence = new LocalSequence(model, model.shape, PREFILL_ROWS, observe, experts);
  const limit = Math.min(iterations, model.shape.maxPositions - promptIds.length);
  const tokenIds: number[] = [];
  const maxPositions = promptIds.length + limit;
  const sampler = new TokenSampler({ sampling, promptTokens: promptIds.length, maxPositions, constraint: null });
  try {
    let logits = await sequence.prefill(promptIds);
    while (tokenIds.length < limit) {
      const tokenId = runAtOnce(sampler.sample(logits, [...promptIds, ...tokenIds]));
      if (endTokenIds.includes(tokenId)) break;
      tokenIds.push(tokenId);
      logits = await sequence.decode(tokenId);
    }
  } catch (thrown) {
    await sequence.end();
    throw thrown;
  }
  return { promptIds, tokenIds, activated, scores, sequence };
}
