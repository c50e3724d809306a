import { OdmoeError } from '../errors/index.js';
import type { SamplingMessage } from '../rpc/messages.js';

/** How a token is chosen. Every field is checked; nothing is left to a default. */
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

export const MAX_TEMPERATURE = 1000;
export const MAX_REPETITION_PENALTY = 1000;
export const MAX_SEED = Number.MAX_SAFE_INTEGER;

/**
 * A request's sampling as it came (null: none given, which is greedy) made whole. `chooseSeed` is asked when the request names
 * no seed. Throws REQUEST_INVALID for a value out of range.
 */
export function resolveSampling(message: SamplingMessage | null, chooseSeed: () => number): SamplingOptions {
  const given = message ?? { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
  const options: SamplingOptions = {
    temperature: given.temperature,
    topK: given.topK,
    topP: given.topP === 0 ? 1 : given.topP,
    minP: given.minP,
    repetitionPenalty: given.repetitionPenalty === 0 ? 1 : given.repetitionPenalty,
    seed: given.seed ?? chooseSeed(),
  };
  requireRange('temperature', options.temperature, 0, MAX_TEMPERATURE, false);
  requireRange('top_k', options.topK, 0, 2 ** 31 - 1, true);
  requireRange('top_p', options.topP, Number.MIN_VALUE, 1, false);
  requireRange('min_p', options.minP, 0, 1, false);
  requireRange('repetition_penalty', options.repetitionPenalty, Number.MIN_VALUE, MAX_REPETITION_PENALTY, false);
  requireRange('seed', options.seed, 0, MAX_SEED, true);
  return options;
}

function requireRange(name: string, value: number, lowest: number, highest: number, whole: boolean): void {
  if (value >= lowest && value <= highest && (!whole || Number.isSafeInteger(value))) return;
  const kind = whole ? 'a whole number' : 'a number';
  const range = lowest === Number.MIN_VALUE ? `above 0 and at most ${highest}` : `from ${lowest} to ${highest}`;
  throw new OdmoeError('REQUEST_INVALID', `${name} is ${value}; it must be ${kind} ${range}`);
}
