import { OdmoeError } from '../errors/index.js';
import { MAX_SEED } from '../sampling/sampling-options.js';
import type { GenerateRequest, SamplingMessage } from './messages.js';

/** Most stop strings and log-probabilities one request may ask for. */
const STOP_STRINGS_LIMIT = 64;
const STOP_STRING_LENGTH_LIMIT = 1024;
const LOGPROBS_LIMIT = 1024;
/** uint32 of the wire. */
const MAX_TOKENS_LIMIT = 2 ** 32 - 1;
const MAX_TEMPERATURE = 1000;
const MAX_REPETITION_PENALTY = 1000;

/**
 * What holds for any model: exactly one form of prompt, numbers in their ranges. Every request passes here once, where it comes in
 * (from the wire, or into the single-process engine); whether it fits the model is `resolveGeneration`'s to say. Throws
 * REQUEST_INVALID naming the field.
 */
export function validateGenerateRequest(request: GenerateRequest): GenerateRequest {
  requireOnePrompt(request);
  requireRange('max_tokens', request.maxTokens, 1, MAX_TOKENS_LIMIT, true);
  requireRange('logprobs', request.logprobs, 0, LOGPROBS_LIMIT, true);
  requireStopStrings(request.stop);
  if (request.sampling !== null) requireSampling(request.sampling);
  return request;
}

function requireOnePrompt(request: GenerateRequest): void {
  const given = [request.text !== '', request.messages.length > 0, request.promptTokenIds.length > 0];
  if (given.filter(Boolean).length === 1) return;
  const found = given.some(Boolean) ? 'more than one of them' : 'none of them';
  throw invalid(`a request takes one prompt: a text, chat messages or prompt token ids; ${found} was given`);
}

function requireStopStrings(stop: readonly string[]): void {
  if (stop.length > STOP_STRINGS_LIMIT) {
    throw invalid(`${stop.length} stop strings were given; at most ${STOP_STRINGS_LIMIT} are taken`);
  }
  const wrong = stop.find((text) => text.length === 0 || text.length > STOP_STRING_LENGTH_LIMIT);
  if (wrong === undefined) return;
  throw invalid(`a stop string of ${wrong.length} characters was given; it must have 1 to ${STOP_STRING_LENGTH_LIMIT}`);
}

/** 0 turns top_k, top_p, min_p and the repetition penalty off. */
function requireSampling({ temperature, topK, topP, minP, repetitionPenalty, seed }: SamplingMessage): void {
  requireRange('temperature', temperature, 0, MAX_TEMPERATURE, false);
  requireRange('top_k', topK, 0, 2 ** 31 - 1, true);
  requireRange('top_p', topP, 0, 1, false);
  requireRange('min_p', minP, 0, 1, false);
  requireRange('repetition_penalty', repetitionPenalty, 0, MAX_REPETITION_PENALTY, false);
  if (seed !== undefined) requireRange('seed', seed, 0, MAX_SEED, true);
}

function requireRange(name: string, value: number, lowest: number, highest: number, whole: boolean): void {
  if (value >= lowest && value <= highest && (!whole || Number.isSafeInteger(value))) return;
  throw invalid(`${name} is ${value}; it must be a ${whole ? 'whole ' : ''}number from ${lowest} to ${highest}`);
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message);
}
