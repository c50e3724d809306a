import { OdmoeError } from '../../shared/errors/index.js';
import { LOGPROBS_LIMIT, STOP_STRINGS_LIMIT } from '../../shared/rpc/generate-validation.js';
import type { GenerateRequest } from '../../shared/rpc/messages.js';
import { resolveSampling } from '../../shared/sampling/index.js';
import type { Tokenizer } from '../../shared/tokenizer/index.js';
import type { GenerationOptions } from './generate-tokens.js';

/** uint32 of the wire. */
const MAX_TOKENS_LIMIT = 2 ** 32 - 1;
export const STOP_STRING_LENGTH_LIMIT = 1024;

/** What of a model bounds a request. */
export interface GenerationLimits {
  vocabSize: number;
  /** Positions of prompt and answer together. */
  maxPositions: number;
  eosTokenIds: readonly number[];
}

export interface ResolvedGeneration {
  promptIds: number[];
  options: GenerationOptions;
}

/**
 * A request as it came over the wire or from the command line, checked and made whole. `chooseSeed` is asked when it names no
 * seed. Throws REQUEST_INVALID, PROMPT_TOO_LONG or TOKENIZER_INVALID.
 */
export function resolveGeneration(
  request: GenerateRequest,
  tokenizer: Tokenizer | null,
  limits: GenerationLimits,
  chooseSeed: () => number,
): ResolvedGeneration {
  requireStopStrings(request.stop, tokenizer);
  requireWhole('max_tokens', request.maxTokens, 1, MAX_TOKENS_LIMIT);
  requireWhole('logprobs', request.logprobs, 0, LOGPROBS_LIMIT);
  const sampling = resolveSampling(request.sampling, chooseSeed);
  const promptIds = promptTokenIds(request, tokenizer);
  requireInVocabulary(promptIds, limits.vocabSize);
  requireRoom(promptIds.length, request.maxTokens, limits.maxPositions);
  return {
    promptIds,
    options: {
      maxTokens: request.maxTokens,
      sampling,
      stop: request.stop,
      ignoreEos: request.ignoreEos,
      eosTokenIds: limits.eosTokenIds,
      logprobs: Math.min(request.logprobs, limits.vocabSize),
    },
  };
}

/**
 * Token ids of a request's prompt: exactly one of text, messages and promptTokenIds must be given. Text goes through the chat
 * template as a user's message unless the request is raw or the model has no template.
 */
export function promptTokenIds(request: GenerateRequest, tokenizer: Tokenizer | null): number[] {
  const given = [request.text !== '', request.messages.length > 0, request.promptTokenIds.length > 0];
  if (given.filter(Boolean).length !== 1) {
    const found = given.some(Boolean) ? 'more than one of them' : 'none of them';
    throw new OdmoeError(
      'REQUEST_INVALID',
      `a request takes one prompt: a text, chat messages or prompt token ids; ${found} was given`,
    );
  }
  if (request.promptTokenIds.length > 0) return [...request.promptTokenIds];
  if (tokenizer === null) {
    throw new OdmoeError(
      'TOKENIZER_INVALID',
      'the model has no tokenizer.json, so it takes no text; give the prompt as token ids (--prompt-token-ids 1,2,3)',
    );
  }
  if (request.messages.length > 0) return tokenizer.encodeRendered(tokenizer.renderChat(request.messages));
  if (request.raw || !tokenizer.hasChatTemplate) return tokenizer.encode(request.text);
  return tokenizer.encodeRendered(tokenizer.renderChat([{ role: 'user', content: request.text }]));
}

function requireInVocabulary(tokenIds: readonly number[], vocabSize: number): void {
  if (tokenIds.length === 0) throw new OdmoeError('REQUEST_INVALID', 'the prompt has no tokens; give it some text');
  const wrong = tokenIds.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (wrong === undefined) return;
  throw new OdmoeError(
    'REQUEST_INVALID',
    `prompt token id ${wrong} is not in the vocabulary, whose ids are whole numbers from 0 to ${vocabSize - 1}`,
  );
}

function requireRoom(promptTokens: number, maxTokens: number, maxPositions: number): void {
  if (promptTokens + maxTokens <= maxPositions) return;
  throw new OdmoeError(
    'PROMPT_TOO_LONG',
    `the prompt has ${promptTokens} tokens and max_tokens is ${maxTokens}, together ${promptTokens + maxTokens}, but the ` +
      `context holds ${maxPositions}; shorten the prompt or lower max_tokens`,
  );
}

function requireStopStrings(stop: readonly string[], tokenizer: Tokenizer | null): void {
  if (stop.length > STOP_STRINGS_LIMIT) {
    throw new OdmoeError(
      'REQUEST_INVALID',
      `${stop.length} stop strings were given; at most ${STOP_STRINGS_LIMIT} are taken`,
    );
  }
  for (const text of stop) {
    if (text.length > 0 && text.length <= STOP_STRING_LENGTH_LIMIT) continue;
    throw new OdmoeError(
      'REQUEST_INVALID',
      `a stop string of ${text.length} characters was given; it must have 1 to ${STOP_STRING_LENGTH_LIMIT}`,
    );
  }
  if (stop.length > 0 && tokenizer === null) {
    throw new OdmoeError(
      'REQUEST_INVALID',
      'stop strings need text, but the model has no tokenizer.json; leave them out',
    );
  }
}

function requireWhole(name: string, value: number, lowest: number, highest: number): void {
  if (Number.isInteger(value) && value >= lowest && value <= highest) return;
  throw new OdmoeError(
    'REQUEST_INVALID',
    `${name} is ${value}; it must be a whole number from ${lowest} to ${highest}`,
  );
}
