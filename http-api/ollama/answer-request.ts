import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { type PreparedChat, type AnswerParser, type ResponseFormat, schemaOf } from '../conversation/chat-request.js';
import type { HttpApiContext } from '../http-api-context.js';
import { wantedArithmetic } from '../fields/arithmetic-field.js';
import { invalidField } from '../fields/field-table.js';
import type { AnswerStreamOptions } from './answer-stream.js';
import { ollamaChat, promptChat, responseFormatOf } from './conversation.js';
import { answerOptions } from './options.js';
import type { OllamaChatFields, GenerateFields } from './request-fields.js';
import { jsonFormat } from '../../shared/language/response-format.js';

/** A checked request for an answer. */
export interface AnswerRequest {
  generate: GenerateRequest;
  reading: AnswerStreamOptions;
  /** Most positions of prompt and answer together; null: those of the context. */
  positions: number | null;
}

const NO_PROMPT = { text: '', messages: [], promptTokenIds: [], raw: false, ignoreEos: false };

/** The request of /api/chat. Throws REQUEST_INVALID with the field. */
export function chatAnswer(fields: OllamaChatFields, context: HttpApiContext): AnswerRequest {
  const prepared = context.prepareChat(ollamaChat(fields, context.model.tokenizer?.chatTemplateSource ?? null));
  return answerRequest(fields, { ...NO_PROMPT, ...prepared.request }, prepared, 'chat', context);
}

/** The request of /api/generate. It uses the chat template, unless the request is raw or the model has no template. */
export function promptAnswer(fields: GenerateFields, context: HttpApiContext): AnswerRequest {
  const { tokenizer } = context.model;
  if (fields.raw !== true && tokenizer?.hasChatTemplate === true) {
    const prepared = context.prepareChat(promptChat(fields, tokenizer.chatTemplateSource));
    return answerRequest(fields, { ...NO_PROMPT, ...prepared.request }, prepared, 'generate', context);
  }
  const why = fields.raw === true ? 'a raw prompt goes through no chat template' : 'the model has no chat template';
  if (fields.system !== undefined && fields.system !== '') throw invalidField('system', `system: ${why}`);
  if (fields.think !== undefined && fields.think !== false) throw invalidField('think', `think: ${why}`);
  const prompt = { ...NO_PROMPT, text: fields.prompt ?? '', raw: true };
  return answerRequest(fields, prompt, plainAnswer(responseFormatOf(fields.format)), 'generate', context);
}

function answerRequest(
  fields: OllamaChatFields | GenerateFields,
  prompt: Omit<GenerateRequest, 'maxTokens' | 'sampling' | 'stop' | 'logprobs'>,
  prepared: Pick<PreparedChat, 'outputFormat' | 'createParser'>,
  endpoint: AnswerStreamOptions['endpoint'],
  { model }: HttpApiContext,
): AnswerRequest {
  const { sampling, stop, maxTokens, positions } = answerOptions(fields.options);
  const topLogprobs = fields.top_logprobs ?? 0;
  const logprobs = fields.logprobs === true;
  if (topLogprobs > 0 && !logprobs) throw invalidField('top_logprobs', 'top_logprobs: it needs logprobs: true');
  return {
    generate: {
      ...prompt,
      ...wantedArithmetic(fields),
      maxTokens,
      sampling: { ...sampling, outputFormat: prepared.outputFormat },
      stop,
      // The chosen token's own log-probability comes only with alternatives, so at least one is requested.
      logprobs: logprobs ? Math.max(1, topLogprobs) : 0,
    },
    reading: {
      endpoint,
      topLogprobs,
      logprobs,
      tokenizer: model.tokenizer,
      createParser: (promptEnd) => prepared.createParser(promptEnd),
      showSpecialTokens: prompt.showSpecialTokens ?? false,
    },
    positions: positions !== null && positions < model.contextPositions ? positions : null,
  };
}

/** Limits the request to its number of positions. Throws PROMPT_TOO_LONG. */
export async function withinPositions(
  { generate, positions }: AnswerRequest,
  context: Pick<HttpApiContext, 'tokenize' | 'tokenizeChat'>,
  signal: AbortSignal,
): Promise<GenerateRequest> {
  if (positions === null) return generate;
  const { length } = await (generate.raw
    ? context.tokenize(generate.text, true, signal)
    : context.tokenizeChat(generate, signal));
  if (length < positions) return { ...generate, maxTokens: Math.min(generate.maxTokens, positions - length) };
  throw new OdmoeError(
    'PROMPT_TOO_LONG',
    `the prompt has ${length} tokens, but num_ctx is ${positions}, and the answer needs one of them; raise it or shorten the prompt`,
    { field: 'options.num_ctx' },
  );
}

/** The format and parser for a prompt without a chat template: all text of the answer is content. */
export function plainAnswer(format: ResponseFormat | null): Pick<PreparedChat, 'outputFormat' | 'createParser'> {
  return {
    outputFormat: format === null ? null : jsonFormat(schemaOf(format)),
    createParser: () => PLAIN,
  };
}

const PLAIN: AnswerParser = {
  push: (text) => (text === '' ? [] : [{ kind: 'content', text }]),
  finish: () => [],
  lastCallWhole: false,
};
