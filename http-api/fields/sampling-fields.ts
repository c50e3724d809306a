import { z } from 'zod';
import {
  MAX_TOKENS_RANGE,
  STOP_STRING_LENGTH_LIMIT,
  STOP_STRINGS_LIMIT,
} from '../../shared/wire/generate-validation.js';
import type { LogitBias, SamplingMessage } from '../../shared/wire/messages.js';
import {
  ANSWER_PENALTY_RANGE,
  describeRange,
  isInRange,
  LOGIT_BIAS_RANGE,
  type NumberRange,
  PROBABILITY_RANGE,
  REPETITION_PENALTY_RANGE,
  SEED_RANGE,
  TEMPERATURE_RANGE,
  TOP_K_RANGE,
} from '../../shared/wire/sampling-options.js';

/** More than any context has: the answer may use all positions that the prompt leaves. */
export const ALL_ROOM = MAX_TOKENS_RANGE.most;

/** Like the other APIs, -1 also means off. */
const TOP_K_OR_OFF: NumberRange = { ...TOP_K_RANGE, least: -1 };

/** Like the other APIs, -1 also means no seed. */
const SEED_OR_DRAWN: NumberRange = { ...SEED_RANGE, least: -1 };

/** A number of a request that must lie within a range. */
export function numberWithin(range: NumberRange): z.ZodNumber {
  return z.number().refine((value) => isInRange(value, range), {
    error: `it must be ${describeRange(range)}`,
  });
}

const stopText = z.string().min(1).max(STOP_STRING_LENGTH_LIMIT);

/** Sampling fields that have the same name in all dialects. */
export const SHARED_SAMPLING_FIELDS = {
  temperature: numberWithin(TEMPERATURE_RANGE)
    .optional()
    .describe('0, which is the default, takes the likeliest token'),
  top_p: numberWithin(PROBABILITY_RANGE).optional().describe('0: the likeliest token alone'),
  top_k: numberWithin(TOP_K_OR_OFF).optional().describe('0 or -1: all tokens'),
  min_p: numberWithin(PROBABILITY_RANGE).optional().describe("least probability, as a part of the likeliest token's"),
  presence_penalty: numberWithin(ANSWER_PENALTY_RANGE).optional().describe('counts the answer, not the prompt'),
  frequency_penalty: numberWithin(ANSWER_PENALTY_RANGE).optional().describe('counts the answer, not the prompt'),
} as const;

/** Sampling fields that chat and text completions share. */
export const SAMPLING_FIELDS = {
  ...SHARED_SAMPLING_FIELDS,
  repetition_penalty: numberWithin(REPETITION_PENALTY_RANGE).optional().describe('counts prompt and answer; 1 is off'),
  logit_bias: z
    .union(
      [
        z.record(z.string().regex(/^\d{1,9}$/, 'the names must be token ids'), numberWithin(LOGIT_BIAS_RANGE)),
        z.array(z.tuple([z.int().min(0), numberWithin(LOGIT_BIAS_RANGE)])),
      ],
      { error: 'it must be an object of token ids and biases, or a list of pairs of them' },
    )
    .optional()
    .describe(
      'token id to what is added to its logit; -100 forbids the token. Also as a list of pairs: `[[id, bias], ...]`',
    ),
  seed: numberWithin(SEED_OR_DRAWN)
    .transform((value) => (value === -1 ? undefined : value))
    .optional()
    .describe('the same seed and `system_fingerprint` give the same bits; -1: drawn'),
  stop: z
    .union([stopText, z.array(stopText).max(STOP_STRINGS_LIMIT)])
    .optional()
    .describe(`a text, or up to ${STOP_STRINGS_LIMIT}; the answer ends before the first that comes`),
  ignore_eos: z
    .boolean()
    .optional()
    .describe('goes on after the token that ends an answer; not where a format or a forced call ends it'),
} as const;

type SamplingFields = z.infer<z.ZodObject<typeof SAMPLING_FIELDS>>;

/** `seed`: replaces the seed of the request. */
export function samplingOfFields(
  fields: SamplingFields & { repeat_penalty?: number | undefined },
  seed: number | undefined,
): SamplingMessage {
  const topP = fields.top_p ?? 1;
  return {
    temperature: fields.temperature ?? 0,
    // The smallest set of tokens that reaches probability 0 is one token.
    topK: topP === 0 ? 1 : Math.max(0, fields.top_k ?? 0),
    topP,
    minP: fields.min_p ?? 0,
    repetitionPenalty: fields.repetition_penalty ?? fields.repeat_penalty ?? 1,
    presencePenalty: fields.presence_penalty ?? 0,
    frequencyPenalty: fields.frequency_penalty ?? 0,
    logitBias: logitBiasFrom(fields.logit_bias ?? {}),
    ...(seed === undefined ? {} : { seed }),
  };
}

function logitBiasFrom(biases: NonNullable<SamplingFields['logit_bias']>): LogitBias[] {
  if (Array.isArray(biases)) return biases.map(([tokenId, bias]) => ({ tokenId, bias }));
  return Object.entries(biases).map(([tokenId, bias]) => ({ tokenId: Number(tokenId), bias }));
}

export function stopFrom({ stop }: SamplingFields): string[] {
  if (stop === undefined) return [];
  return typeof stop === 'string' ? [stop] : stop;
}
