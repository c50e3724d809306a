import type { FastifyInstance } from 'fastify';
import type { GenerateRequest } from '../../../shared/rpc/messages.js';
import type { ClientFields } from '../answer/client-fields.js';
import type { PreparedChat, PrepareChat } from '../conversation/chat-request.js';
import type { DoorContext } from '../door-context.js';
import { requireServedModel } from '../fields/model-field.js';
import { answerHead, answerSeeds, generateAll, prepareFor } from './answer-requests.js';
import { ChatBody, ChatStream } from './chat-answers.js';
import { chatRequestFrom, readChatFields, type ChatFields } from './chat-fields.js';
import { eventOf, OPENAI, STREAM_END } from './openai-dialect.js';
import { ALL_ROOM, samplingFrom, stopFrom } from '../fields/sampling-fields.js';

const CLIENT_FIELDS: ClientFields = {
  ...{ text: 'messages', template_arguments: 'chat_template_kwargs', thinking: 'reasoning_effort' },
};

/** POST /v1/chat/completions. */
export function registerChatRoutes(app: FastifyInstance, context: DoorContext, prepareChat: PrepareChat): void {
  for (const path of ['/v1/chat/completions', '/chat/completions']) {
    app.post(path, { config: { dialect: OPENAI } }, async (request, reply) => {
      const fields = readChatFields(request.body);
      requireServedModel(fields.model, context);
      const { tokenizer } = context.model;
      const prepared = prepareFor(
        prepareChat,
        chatRequestFrom(fields, tokenizer?.chatTemplateSource ?? null),
        CLIENT_FIELDS,
      );
      const requests = chatRequests(fields, prepared, context);
      const names = {
        ...CLIENT_FIELDS,
        output_format: fields.response_format === undefined ? 'tools' : 'response_format',
      };
      const head = answerHead('chatcmpl-', context);
      const options = {
        tokenizer,
        createParser: (promptEnd: string, answer: number) => prepared.createParser(promptEnd, answer),
        logprobs: fields.logprobs ?? false,
        showSpecialTokens: prepared.request.showSpecialTokens ?? false,
        count: requests.length,
        topLogprobs: fields.top_logprobs ?? 0,
      };
      if (fields.stream !== true) {
        await context.deliverBody(request, reply, OPENAI, async (signal, watch) => {
          const body = new ChatBody(head, options);
          for await (const one of generateAll(context, requests, names, signal, watch)) body.take(one.index, one.reply);
          return body.body();
        });
        return;
      }
      await context.deliverStream(request, reply, OPENAI, async function* (signal, watch) {
        const stream = new ChatStream(head, options);
        for await (const one of generateAll(context, requests, names, signal, watch)) {
          for (const chunk of stream.take(one.index, one.reply)) yield eventOf(chunk);
        }
        if (fields.stream_options?.include_usage === true) yield eventOf(stream.usage());
        yield STREAM_END;
      });
    });
  }
}

/** One request for each answer. */
function chatRequests(
  fields: ChatFields,
  { request, outputFormat }: PreparedChat,
  { runtime }: DoorContext,
): GenerateRequest[] {
  return answerSeeds(fields.seed, fields.n ?? 1, runtime).map((seed) => ({
    ...request,
    text: '',
    promptTokenIds: [],
    raw: false,
    maxTokens: Math.min(fields.max_completion_tokens ?? fields.max_tokens ?? ALL_ROOM, ALL_ROOM),
    sampling: { ...samplingFrom(fields, seed), outputFormat },
    stop: stopFrom(fields),
    ignoreEos: fields.ignore_eos ?? false,
    // Without alternatives the chosen token's own is asked for.
    logprobs: fields.logprobs === true ? Math.max(1, fields.top_logprobs ?? 0) : 0,
  }));
}
