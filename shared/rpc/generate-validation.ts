import { OdmoeError } from '../errors/index.js';
import type { GenerateRequest, SamplingMessage } from './messages.js';

/** Most stop strings and log-probabilities one request may ask for. */
export const STOP_STRINGS_LIMIT = 64;
export const LOGPROBS_LIMIT = 1024;

/**
 * Ranges that hold for any model: exactly one form of prompt, sampling numbers in their domains. Throws REQUEST_INVALID
 * naming the field. Whether the prompt fits the model is main's to say.
 */
export function validateGenerateRequest(request: GenerateRequest): GenerateRequest {
  const forms = [request.text !== '', request.messages.length > 0, request.promptTokenIds.length > 0];
  if (forms.filter(Boolean).length !== 1) {
    throw invalid('give exactly one of text, messages and prompt_token_ids, and not an empty one');
  }
  if (request.maxTokens < 1) throw invalid('max_tokens is 0: ask for at least one token');
  if (request.logprobs > LOGPROBS_LIMIT) {
    throw invalid(`logprobs is ${request.logprobs}: at most ${LOGPROBS_LIMIT} can be given with a token`);
  }
  if (request.stop.length > STOP_STRINGS_LIMIT) {
    throw invalid(`${request.stop.length} stop strings: at most ${STOP_STRINGS_LIMIT} are allowed`);
  }
  if (request.stop.includes('')) throw invalid('a stop string is empty');
  if (request.sampling !== null) validateSampling(request.sampling);
  return request;
}

function validateSampling(sampling: SamplingMessage): void {
  const { temperature, topP, minP, repetitionPenalty, seed } = sampling;
  if (!(temperature >= 0 && temperature <= 1000)) throw invalid(`temperature is ${temperature}: 0 (greedy) to 1000`);
  if (!(topP >= 0 && topP <= 1)) throw invalid(`top_p is ${topP}: between 0 (off) and 1`);
  if (!(minP >= 0 && minP <= 1)) throw invalid(`min_p is ${minP}: between 0 (off) and 1`);
  if (!(repetitionPenalty >= 0 && repetitionPenalty <= 1000)) {
    throw invalid(`repetition_penalty is ${repetitionPenalty}: 0 or 1 (off) to 1000`);
  }
  if (seed !== undefined && !Number.isSafeInteger(seed)) throw invalid('seed is beyond 2^53');
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message);
}
