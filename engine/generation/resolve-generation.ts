import { OdmoeError } from '../../shared/errors/index.js';
import type { GenerateRequest } from '../../shared/rpc/messages.js';
import { resolveSampling } from '../../shared/sampling/index.js';
import type { Tokenizer } from '../../shared/tokenizer/index.js';
import type { GenerationOptions } from './generate-tokens.js';

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
 * A validated request (`validateGenerateRequest`) held against the model and made whole. `chooseSeed` is asked when it names no
 * seed. A `maxTokens` above what the prompt leaves of the context becomes that. Throws REQUEST_INVALID, PROMPT_TOO_LONG or TOKENIZER_INVALID.
 */
export function resolveGeneration(
  request: GenerateRequest,
  tokenizer: Tokenizer | null,
  limits: GenerationLimits,
  chooseSeed: () => number,
): ResolvedGeneration {
  requireTextToStopAt(request.stop, tokenizer);
  const sampling = resolveSampling(request.sampling, chooseSeed);
  const promptIds = promptTokenIds(request, tokenizer);
  requireInVocabulary(promptIds, limits.vocabSize);
  const room = roomForAnswer(promptIds.length, limits.maxPositions);
  return {
    promptIds,
    options: {
      maxTokens: Math.min(request.maxTokens, room),
      sampling,
      stop: request.stop,
      ignoreEos: request.ignoreEos,
      eosTokenIds: limits.eosTokenIds,
      logprobs: Math.min(request.logprobs, limits.vocabSize),
    },
  };
}

/**
 * Token ids of a validated request's prompt. Text goes through the chat
 * template as a user's message unless the request is raw or the model has no template.
 */
export function promptTokenIds(request: GenerateRequest, tokenizer: Tokenizer | null): number[] {
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

/** Tokens that an answer may have at most: what the prompt leaves of the context. */
function roomForAnswer(promptTokens: number, maxPositions: number): number {
  if (promptTokens < maxPositions) return maxPositions - promptTokens;
  throw new OdmoeError(
    'PROMPT_TOO_LONG',
    `the prompt has ${promptTokens} tokens, but the context holds ${maxPositions}, and the answer needs one of them; ` +
      'shorten the prompt',
  );
}

function requireTextToStopAt(stop: readonly string[], tokenizer: Tokenizer | null): void {
  if (stop.length === 0 || tokenizer !== null) return;
  throw new OdmoeError(
    'REQUEST_INVALID',
    'stop strings need text, but the model has no tokenizer.json; leave them out',
  );
}
