import { OdmoeError } from '../errors/odmoe-error.js';
import {
  describeRange,
  isInRange,
  PROBABILITY_RANGE,
  REPETITION_PENALTY_RANGE,
  SEED_RANGE,
  TEMPERATURE_RANGE,
  TOP_K_RANGE,
  type NumberRange,
} from '../sampling/sampling-options.js';
import type { ChatMessage, GenerateRequest } from './messages.js';
import { templateValues } from './template-arguments.js';
import type { SamplingMessage } from '../sampling/sampling-options.js';

/** The highest is uint32 of the wire; what the context does not hold is cut off (`resolveGeneration`). */
export const MAX_TOKENS_RANGE: NumberRange = { least: 1, most: 2 ** 32 - 1, whole: true, zeroIsOff: false };
export const LOGPROBS_RANGE: NumberRange = { least: 0, most: 1024, whole: true, zeroIsOff: false };

/** Most stop strings of one request, and the most characters (UTF-16 units) of one of them. */
export const STOP_STRINGS_LIMIT = 64;
export const STOP_STRING_LENGTH_LIMIT = 1024;

/** Roles that chat templates know. A template may take fewer of them. */
const MESSAGE_ROLES: readonly string[] = ['system', 'developer', 'user', 'assistant', 'tool'];
/** A wrong role is shown up to here. */
const ROLE_SHOWN_LIMIT = 40;

/**
 * What holds for any model: exactly one form of prompt, numbers in their ranges. Every request passes here once, where it comes in
 * (from the wire, or into the single-process engine); whether it fits the model is `resolveGeneration`'s to say. Throws
 * REQUEST_INVALID naming the field.
 */
export function validateGenerateRequest(request: GenerateRequest): GenerateRequest {
  requireOnePrompt(request);
  requireMessages(request.messages);
  requireRange('max_tokens', request.maxTokens, MAX_TOKENS_RANGE);
  requireRange('logprobs', request.logprobs, LOGPROBS_RANGE);
  requireStopStrings(request.stop);
  if (request.sampling !== null) requireSampling(request.sampling);
  requireTemplateArguments(request);
  return request;
}

function requireOnePrompt(request: GenerateRequest): void {
  const given = [request.text !== '', request.messages.length > 0, request.promptTokenIds.length > 0];
  if (given.filter(Boolean).length === 1) return;
  const found = given.some(Boolean) ? 'more than one of them' : 'none of them';
  throw invalid(`a request takes one prompt: a text, chat messages or prompt token ids; ${found} was given`);
}

function requireMessages(messages: readonly ChatMessage[]): void {
  for (const [index, { role, content }] of messages.entries()) {
    if (!MESSAGE_ROLES.includes(role)) {
      const shown = JSON.stringify(role.slice(0, ROLE_SHOWN_LIMIT));
      throw invalid(`messages[${index}] has the role ${shown}; it must be one of ${MESSAGE_ROLES.join(', ')}`);
    }
    if (content === '') throw invalid(`messages[${index}] is empty; give it a content or leave it out`);
  }
}

function requireTemplateArguments({ templateArguments = [], raw, promptTokenIds }: GenerateRequest): void {
  if (templateArguments.length === 0) return;
  if (raw || promptTokenIds.length > 0) {
    throw invalid(
      `template arguments were given, and ${raw ? 'raw text' : 'token ids'} that no chat template is applied to; leave one of them out`,
    );
  }
  templateValues(templateArguments);
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
  requireRange('temperature', temperature, TEMPERATURE_RANGE);
  requireRange('top_k', topK, TOP_K_RANGE);
  requireRange('top_p', topP, PROBABILITY_RANGE);
  requireRange('min_p', minP, PROBABILITY_RANGE);
  requireRange('repetition_penalty', repetitionPenalty, REPETITION_PENALTY_RANGE);
  if (seed !== undefined) requireRange('seed', seed, SEED_RANGE);
}

function requireRange(name: string, value: number, range: NumberRange): void {
  if (!isInRange(value, range)) throw invalid(`${name} is ${value}; it must be ${describeRange(range)}`);
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message);
}
