import { OdmoeError } from '../base/errors/odmoe-error.js';
import { describeRange, isInRange, type NumberRange } from './sampling-options.js';
import type { GenerateRequest } from './messages.js';
import { requireMessages } from './chat-message-validation.js';
import { requireSampling } from './sampling-validation.js';
import { templateValues } from './template-arguments.js';

/** The highest is the greatest uint32 of the wire. `resolveGeneration` lowers the value to what the context can hold. */
export const MAX_TOKENS_RANGE: NumberRange = { least: 0, most: 2 ** 32 - 1, whole: true, zeroIsOff: false };
export const LOGPROBS_RANGE: NumberRange = { least: 0, most: 1024, whole: true, zeroIsOff: false };

/** Most stop strings of one request, and the most characters (UTF-16 units) of one of them. */
export const STOP_STRINGS_LIMIT = 64;
export const STOP_STRING_LENGTH_LIMIT = 1024;

/**
 * Checks the rules that hold for any model: exactly one form of prompt, numbers in their ranges. Every request is checked here once, where it
 * comes in (from the wire, or into the single-process engine). `resolveGeneration` checks that it fits the model. Throws REQUEST_INVALID naming
 * the field.
 */
export function validateGenerateRequest(request: GenerateRequest): GenerateRequest {
  requireOnePrompt(request);
  requireMessages(request.messages);
  requireRange('max_tokens', request.maxTokens, MAX_TOKENS_RANGE);
  requireRange('logprobs', request.logprobs, LOGPROBS_RANGE);
  requireStopStrings(request.stop);
  if (request.sampling !== null) requireSampling(request.sampling);
  requireTemplateArguments(request);
  requirePossible(request);
  return request;
}

function requireOnePrompt(request: GenerateRequest): void {
  const given = [
    ...(request.text === '' ? [] : ['text']),
    ...(request.messages.length === 0 ? [] : ['messages']),
    ...(request.promptTokenIds.length === 0 ? [] : ['prompt_token_ids']),
  ];
  if (given.length === 1) return;
  const found = given.length > 1 ? 'more than one of them' : 'none of them';
  throw invalid(
    given.at(-1) ?? 'text',
    `a request takes one prompt: a text, chat messages or prompt token ids; ${found} was given`,
  );
}

function requireTemplateArguments({ templateArguments = [], raw, promptTokenIds }: GenerateRequest): void {
  if (templateArguments.length === 0) return;
  if (raw || promptTokenIds.length > 0) {
    throw invalid(
      'template_arguments',
      `template arguments were given, and ${raw ? 'raw text' : 'token ids'} that no chat template is applied to; leave one of them out`,
    );
  }
  templateValues(templateArguments);
}

function requireStopStrings(stop: readonly string[]): void {
  if (stop.length > STOP_STRINGS_LIMIT) {
    throw invalid('stop', `${stop.length} stop strings were given; at most ${STOP_STRINGS_LIMIT} are taken`);
  }
  for (const [index, { length }] of stop.entries()) {
    if (length > 0 && length <= STOP_STRING_LENGTH_LIMIT) continue;
    throw invalid(
      `stop[${index}]`,
      `a stop string of ${length} characters was given; it must have 1 to ${STOP_STRING_LENGTH_LIMIT}`,
    );
  }
}

/** Refuses options that contradict one another. */
function requirePossible({ sampling, messages, ignoreEos, logprobs, ...request }: GenerateRequest): void {
  if (ignoreEos && (sampling?.outputFormat ?? null) !== null) {
    throw invalid('ignore_eos', 'an answer with an output format ends where the format does; leave ignore_eos out');
  }
  if (request.promptLogprobs === true && logprobs === 0) {
    throw invalid('prompt_logprobs', 'prompt_logprobs says nothing about how many; give logprobs, 1 or more, too');
  }
  if (request.continueLast === true && messages.at(-1)?.role !== 'assistant') {
    throw invalid('continue_last', "continue_last goes on with the last message, which must be an assistant's");
  }
}

function requireRange(name: string, value: number, range: NumberRange): void {
  if (!isInRange(value, range)) throw invalid(name, `${name} is ${value}; it must be ${describeRange(range)}`);
}

function invalid(field: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field });
}
