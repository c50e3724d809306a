import { OdmoeError } from '../base/errors/odmoe-error.js';
import { requireFormatBounds } from './output-format.js';
import {
  ANSWER_PENALTY_RANGE,
  describeRange,
  isInRange,
  LOGIT_BIAS_LIMIT,
  LOGIT_BIAS_RANGE,
  type NumberRange,
  PROBABILITY_RANGE,
  REPETITION_PENALTY_RANGE,
  SEED_RANGE,
  TEMPERATURE_RANGE,
  TOP_K_RANGE,
} from './sampling-options.js';
import type { LogitBias, SamplingMessage } from './messages.js';

/**
 * Checks the sampling of a client or of main, for any model: numbers in their ranges (0 turns top_k, top_p, min_p and the penalties off), one
 * bias a token, a format within bounds (the compiler of the format finds out whether any text can match it). Throws REQUEST_INVALID naming the
 * field.
 */
export function requireSampling(message: SamplingMessage): void {
  const { seed = null, logitBias = [], outputFormat = null, ...sampling } = message;
  requireRange('temperature', sampling.temperature, TEMPERATURE_RANGE);
  requireRange('top_k', sampling.topK, TOP_K_RANGE);
  requireRange('top_p', sampling.topP, PROBABILITY_RANGE);
  requireRange('min_p', sampling.minP, PROBABILITY_RANGE);
  requireRange('repetition_penalty', sampling.repetitionPenalty, REPETITION_PENALTY_RANGE);
  requireRange('presence_penalty', sampling.presencePenalty ?? 0, ANSWER_PENALTY_RANGE);
  requireRange('frequency_penalty', sampling.frequencyPenalty ?? 0, ANSWER_PENALTY_RANGE);
  if (seed !== null) requireRange('seed', seed, SEED_RANGE);
  requireLogitBias(logitBias);
  if (outputFormat !== null) requireFormatBounds(outputFormat);
}

function requireLogitBias(logitBias: readonly LogitBias[]): void {
  if (logitBias.length > LOGIT_BIAS_LIMIT) {
    throw invalid('logit_bias', `logit_bias has ${logitBias.length} entries; at most ${LOGIT_BIAS_LIMIT} are taken`);
  }
  const known = new Set<number>();
  for (const [index, { tokenId, bias }] of logitBias.entries()) {
    requireRange(`logit_bias[${index}].bias`, bias, LOGIT_BIAS_RANGE);
    if (known.has(tokenId)) {
      throw invalid(`logit_bias[${index}].token_id`, `logit_bias names token id ${tokenId} twice`);
    }
    known.add(tokenId);
  }
}

function requireRange(name: string, value: number, range: NumberRange): void {
  if (!isInRange(value, range)) throw invalid(name, `${name} is ${value}; it must be ${describeRange(range)}`);
}

function invalid(name: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field: `sampling.${name}` });
}
