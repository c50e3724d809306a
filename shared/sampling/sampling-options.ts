import type { SamplingMessage } from '../rpc/messages.js';

/** How a token is chosen. Nothing is left to a default. */
export interface SamplingOptions {
  /** 0: greedy. */
  temperature: number;
  /** 0: off. */
  topK: number;
  /** In (0, 1]; 1: off. */
  topP: number;
  /** In [0, 1]; 0: off. */
  minP: number;
  /** 1: off. */
  repetitionPenalty: number;
  /** Whole number from 0 to 2^53 - 1. */
  seed: number;
}

export const MAX_SEED = Number.MAX_SAFE_INTEGER;

/**
 * A validated request's sampling (null: none given, which is greedy) made whole. `chooseSeed` is asked when the request names no
 * seed.
 */
export function resolveSampling(message: SamplingMessage | null, chooseSeed: () => number): SamplingOptions {
  const given = message ?? { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
  return {
    temperature: given.temperature,
    topK: given.topK,
    topP: given.topP === 0 ? 1 : given.topP,
    minP: given.minP,
    repetitionPenalty: given.repetitionPenalty === 0 ? 1 : given.repetitionPenalty,
    seed: given.seed ?? chooseSeed(),
  };
}
