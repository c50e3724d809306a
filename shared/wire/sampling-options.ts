import type { LogitBias, OutputFormat, SamplingMessage } from './messages.js';

/** Options for the choice of a token. Every option is set. */
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
  /** Taken off the logit of each token that the answer contains, once; 0: off. */
  presencePenalty: number;
  /** Taken off the same logits, once for each occurrence. */
  frequencyPenalty: number;
  logitBias: readonly LogitBias[];
  /** null: any text. */
  outputFormat: OutputFormat | null;
}

export const NEVER_CHOSEN_BIAS = -100;
/** Most entries of a request's logit bias. */
export const LOGIT_BIAS_LIMIT = 1024;

export const MAX_SEED = Number.MAX_SAFE_INTEGER;

/** Completes a validated request's sampling (null: none given, which is greedy). `chooseSeed` is called if the request names no seed. */
export function resolveSampling(message: SamplingMessage | null, chooseSeed: () => number): SamplingOptions {
  const given: SamplingMessage = message ?? { temperature: 0, topK: 0, topP: 0, minP: 0, repetitionPenalty: 0 };
  return {
    temperature: given.temperature,
    topK: given.topK,
    topP: given.topP === 0 ? 1 : given.topP,
    minP: given.minP,
    repetitionPenalty: given.repetitionPenalty === 0 ? 1 : given.repetitionPenalty,
    seed: given.seed ?? chooseSeed(),
    presencePenalty: given.presencePenalty ?? 0,
    frequencyPenalty: given.frequencyPenalty ?? 0,
    logitBias: given.logitBias ?? [],
    outputFormat: given.outputFormat ?? null,
  };
}

/** The numbers that a field of a request may hold. */
export interface NumberRange {
  least: number;
  most: number;
  whole: boolean;
  /** 0 is allowed in addition, and switches the field off, even if it is not within the range. */
  zeroIsOff: boolean;
}

export const TEMPERATURE_RANGE: NumberRange = { least: 0, most: 1000, whole: false, zeroIsOff: false };
export const TOP_K_RANGE: NumberRange = { least: 0, most: 2 ** 31 - 1, whole: true, zeroIsOff: false };
export const PROBABILITY_RANGE: NumberRange = { least: 0, most: 1, whole: false, zeroIsOff: false };
/** Wider than any practical value, and so narrow that no logit of a model becomes infinite. */
export const REPETITION_PENALTY_RANGE: NumberRange = { least: 0.001, most: 1000, whole: false, zeroIsOff: true };
/** OpenAI's API accepts -2 to 2. */
export const ANSWER_PENALTY_RANGE: NumberRange = { least: -100, most: 100, whole: false, zeroIsOff: false };
export const LOGIT_BIAS_RANGE: NumberRange = { least: NEVER_CHOSEN_BIAS, most: 100, whole: false, zeroIsOff: false };
export const SEED_RANGE: NumberRange = { least: 0, most: MAX_SEED, whole: true, zeroIsOff: false };

export function isInRange(value: number, { least, most, whole, zeroIsOff }: NumberRange): boolean {
  if (whole && !Number.isSafeInteger(value)) return false;
  return (value >= least && value <= most) || (zeroIsOff && value === 0);
}

/** "a whole number from 1 to 8", "0 (off) or a number from 0.001 to 1000". */
export function describeRange({ least, most, whole, zeroIsOff }: NumberRange): string {
  return `${zeroIsOff ? '0 (off) or ' : ''}a ${whole ? 'whole ' : ''}number from ${least} to ${most}`;
}
