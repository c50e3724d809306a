import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import type { GenerateRequest } from '../../shared/rpc/messages.js';
import { resolveSampling } from '../../shared/sampling/sampling-options.js';
import type { Tokenizer } from '../../shared/tokenizer/tokenizer.js';
import type { GenerationOptions } from './generate-tokens.js';
import { requireEncodable, type PromptEncoder } from './prompt-encoder.js';

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

/** What a request is held against. */
export interface GenerationModel {
  /** null: the model has none; prompts then come as token ids. */
  tokenizer: Tokenizer | null;
  prompts: PromptEncoder;
  limits: GenerationLimits;
  /** Asked when a request names no seed. */
  chooseSeed: () => number;
}

/**
 * A validated request (`validateGenerateRequest`) held against the model and made whole. A `maxTokens` above what the prompt leaves of
 * the context becomes that. Rejects with REQUEST_INVALID, PROMPT_TOO_LONG, TOKENIZER_INVALID and what the encoder rejects with.
 */
export async function resolveGeneration(
  request: GenerateRequest,
  { tokenizer, prompts, limits, chooseSeed }: GenerationModel,
  signal: AbortSignal,
): Promise<ResolvedGeneration> {
  requireTextToStopAt(request.stop, tokenizer);
  if (tokenizer !== null) requireEncodable(request, tokenizer, limits.maxPositions);
  const promptIds = await prompts.encode(request, signal);
  requireInVocabulary(promptIds, limits.vocabSize);
  const room = roomForAnswer(promptIds.length, limits.maxPositions);
  return {
    promptIds,
    options: {
      maxTokens: Math.min(request.maxTokens, room),
      sampling: resolveSampling(request.sampling, chooseSeed),
      stop: request.stop,
      ignoreEos: request.ignoreEos,
      eosTokenIds: limits.eosTokenIds,
      logprobs: Math.min(request.logprobs, limits.vocabSize),
    },
  };
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
