import type { GenerateRequest } from '../../shared/wire/messages.js';
import type { ClientFields } from '../answer/client-fields.js';
import type { PreparedChat } from '../conversation/chat-request.js';
import type { HttpApiContext, RegisterRoutes } from '../http-api-context.js';
import { wantedArithmetic } from '../fields/arithmetic-field.js';
import { requireServedModel } from '../fields/model-field.js';
import { openaiHead, answerSeeds, prepareFor } from './answer-requests.js';
import { ChatBody, ChatStream } from './chat-answers.js';
import { expectedText, openaiChat, readChatFields, type OpenaiChatFields } from './chat-fields.js';
import { deliverAnswers } from './deliver-answers.js';
import { OPENAI } from './openai-dialect.js';
import { ALL_ROOM, samplingOfFields, stopFrom } from '../fields/sampling-fields.js';

const CLIENT_FIELDS: ClientFields = {
  text: 'messages',
  template_arguments: 'chat_template_kwargs',
  thinking: 'reasoning_effort',
};

/** POST /v1/chat/completions. */
export const registerChatRoutes: RegisterRoutes = (app, context) => {
  for (const path of ['/v1/chat/completions', '/chat/completions']) {
    app.post(path, { config: { dialect: OPENAI } }, async (request, reply) => {
      const fields = readChatFields(request.body);
      requireServedModel(fields.model, context);
      const { tokenizer } = context.model;
      const { chat, warnings } = openaiChat(fields, tokenizer?.chatTemplateSource ?? null);
      const prepared = prepareFor(context, chat, CLIENT_FIELDS);
      const requests = chatRequests(fields, prepared, context);
      const names = {
        ...CLIENT_FIELDS,
        output_format: fields.response_format === undefined ? 'tools' : 'response_format',
      };
      const head = openaiHead('chatcmpl-', context);
      const options = {
        tokenizer,
        createParser: (promptEnd: string, answer: number) => prepared.createParser(promptEnd, answer),
        logprobs: fields.logprobs ?? false,
        showSpecialTokens: prepared.request.showSpecialTokens ?? false,
        count: requests.length,
        topLogprobs: fields.top_logprobs ?? 0,
        warnings,
      };
      const asked = { requests, answersPerPrompt: requests.length, names };
      await deliverAnswers(context, { request, reply }, fields, asked, {
        stream: () => new ChatStream(head, options),
        body: () => new ChatBody(head, options),
      });
    });
  }
};

/** Makes one request for each answer. */
function chatRequests(
  fields: OpenaiChatFields,
  { request, outputFormat }: PreparedChat,
  { runtime }: HttpApiContext,
): GenerateRequest[] {
  const expected = expectedText(fields);
  return answerSeeds(fields.seed, fields.n ?? 1, runtime).map((seed) => ({
    ...request,
    ...wantedArithmetic(fields),
    ...(expected === '' ? {} : { expectedText: expected }),
    text: '',
    promptTokenIds: [],
    raw: false,
    maxTokens: Math.min(fields.max_completion_tokens ?? fields.max_tokens ?? ALL_ROOM, ALL_ROOM),
    sampling: { ...samplingOfFields(fields, seed), outputFormat },
    stop: stopFrom(fields),
    ignoreEos: fields.ignore_eos ?? false,
    // Without alternatives, one is requested, because the chosen token's own log-probability comes with it.
    logprobs: fields.logprobs === true ? Math.max(1, fields.top_logprobs ?? 0) : 0,
  }));
}
