import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateRequest, LogitBias } from '../../shared/wire/messages.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { FormatSource } from '../sampling/output-formats.js';
import type { GenerationOptions } from './generate-tokens.js';
import { PROMPT_LOGPROBS_LIMIT } from './prompt-logprobs.js';
import { type ContextLimit, requireEncodable, tooLong, type PromptEncoder } from './prompt-encoder.js';

/** Limits that a model sets for requests. */
export interface GenerationLimits extends ContextLimit {
  vocabSize: number;
  eosTokenIds: readonly number[];
}

export interface ResolvedGeneration {
  promptIds: number[];
  options: GenerationOptions;
}

/** The model-specific parts that a request is checked against. */
export interface GenerationModel {
  /** null: the model has no tokenizer; then prompts come as token ids. */
  tokenizer: Tokenizer | null;
  prompts: PromptEncoder;
  formats: FormatSource;
  limits: GenerationLimits;
  /** Called when a request names no seed. */
  chooseSeed: () => number;
}

/**
 * Checks a validated request (`validateGenerateRequest`) against the model and completes it. `maxTokens` is reduced to the positions that the
 * prompt leaves of the context. Rejects with REQUEST_INVALID, PROMPT_TOO_LONG, TOKENIZER_INVALID and the errors of the encoder.
 */
export async function resolveGeneration(
  request: GenerateRequest,
  { tokenizer, prompts, formats, limits, chooseSeed }: GenerationModel,
  signal: AbortSignal,
): Promise<ResolvedGeneration> {
  requireTextToStopAt(request.stop, tokenizer);
  const sampling = resolveSampling(request.sampling, chooseSeed);
  requireBiasInVocabulary(sampling.logitBias, limits.vocabSize);
  if (tokenizer !== null) requireEncodable(request, tokenizer, limits);
  const constraint = await formats.constraintOf(sampling.outputFormat, signal);
  const promptIds = await prompts.encode(request, signal);
  requireInVocabulary(promptIds, limits.vocabSize);
  const room = roomForAnswer(promptIds.length, limits, request.maxTokens === 0 ? 0 : 1);
  const logprobs = Math.min(request.logprobs, limits.vocabSize);
  const { promptLogprobs = false, showSpecialTokens = false } = request;
  if (promptLogprobs) requirePromptLogprobsBounded(promptIds.length, logprobs);
  return {
    promptIds,
    options: {
      maxTokens: Math.min(request.maxTokens, room),
      sampling,
      constraint,
      stop: request.stop,
      ignoreEos: request.ignoreEos,
      eosTokenIds: limits.eosTokenIds,
      logprobs,
      promptLogprobs,
      showSpecialTokens,
    },
  };
}

function requireInVocabulary(tokenIds: readonly number[], vocabSize: number): void {
  if (tokenIds.length === 0)
    throw new OdmoeError('REQUEST_INVALID', 'the prompt has no tokens; give it some text', { field: 'text' });
  const place = tokenIds.findIndex((id) => !isToken(id, vocabSize));
  if (place < 0) return;
  throw notInVocabulary(`prompt token id ${tokenIds[place]}`, vocabSize, `prompt_token_ids[${place}]`);
}

function requireBiasInVocabulary(biases: readonly LogitBias[], vocabSize: number): void {
  const place = biases.findIndex(({ tokenId }) => !isToken(tokenId, vocabSize));
  if (place < 0) return;
  const field = `sampling.logit_bias[${place}].token_id`;
  throw notInVocabulary(`token id ${biases[place]?.tokenId} of logit_bias`, vocabSize, field);
}

function isToken(id: number, vocabSize: number): boolean {
  return Number.isInteger(id) && id >= 0 && id < vocabSize;
}

function notInVocabulary(what: string, vocabSize: number, field: string): OdmoeError {
  return new OdmoeError(
    'REQUEST_INVALID',
    `${what} is not in the vocabulary, whose ids are whole numbers from 0 to ${vocabSize - 1}`,
    { field },
  );
}

function requirePromptLogprobsBounded(promptTokens: number, logprobs: number): void {
  const most = Math.floor(PROMPT_LOGPROBS_LIMIT / promptTokens) - 1;
  if (logprobs <= most) return;
  throw new OdmoeError(
    'REQUEST_INVALID',
    `${logprobs} log-probabilities for each of the prompt's ${promptTokens} tokens are too many; ` +
      `ask for ${most < 1 ? 'those of the answer alone' : `${most} at most`}`,
    { field: 'logprobs' },
  );
}

/** Most tokens of an answer: the positions that the prompt leaves of the context. `needed`: fewest tokens that the answer must have. */
function roomForAnswer(promptTokens: number, { maxPositions, toRaise }: ContextLimit, needed: 0 | 1): number {
  if (promptTokens + needed <= maxPositions) return maxPositions - promptTokens;
  const answer = needed === 0 ? '' : ', and the answer needs one of them';
  throw tooLong(`${promptTokens} tokens`, `the context holds ${maxPositions}${answer}`, toRaise);
}

function requireTextToStopAt(stop: readonly string[], tokenizer: Tokenizer | null): void {
  if (stop.length === 0 || tokenizer !== null) return;
  throw new OdmoeError(
    'REQUEST_INVALID',
    'stop strings need text, but the model has no tokenizer.json; leave them out',
    { field: 'stop' },
  );
}
