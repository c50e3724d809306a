import type { FastifyInstance } from 'fastify';
import { jsonFormat } from '../../../shared/output-format/response-format.js';
import type { GenerateRequest } from '../../../shared/rpc/messages.js';
import type { ClientFields } from '../answer/client-fields.js';
import type { DoorContext } from '../door-context.js';
import { requireServedModel } from '../fields/model-field.js';
import { answerHead, answerSeeds, generateAll } from './answer-requests.js';
import { responseFormatFrom, schemaOf } from './chat-tools.js';
import { CompletionBody, CompletionStream } from './completion-answers.js';
import { promptsFrom, readCompletionFields, type CompletionFields } from './completion-fields.js';
import { eventOf, OPENAI, STREAM_END } from './openai-dialect.js';
import { ALL_ROOM, samplingFrom, stopFrom } from '../fields/sampling-fields.js';

const CLIENT_FIELDS: ClientFields = { text: 'prompt', prompt_token_ids: 'prompt', output_format: 'response_format' };

/** POST /v1/completions: text in, text out, without a chat template. */
export function registerCompletionRoutes(app: FastifyInstance, context: DoorContext): void {
  for (const path of ['/v1/completions', '/completions']) {
    app.post(path, { config: { dialect: OPENAI } }, async (request, reply) => {
      const fields = readCompletionFields(request.body);
      requireServedModel(fields.model, context);
      const requests = completionRequests(fields, context);
      const head = answerHead('cmpl-', context);
      const options = {
        tokenizer: context.model.tokenizer,
        prompts: promptsFrom(fields),
        count: fields.n ?? 1,
        echo: fields.echo ?? false,
        logprobs: fields.logprobs ?? null,
      };
      if (fields.stream !== true) {
        await context.deliverBody(request, reply, OPENAI, async (signal, watch) => {
          const body = new CompletionBody(head, options);
          for await (const one of generateAll(context, requests, CLIENT_FIELDS, signal, watch))
            body.take(one.index, one.reply);
          return body.body();
        });
        return;
      }
      await context.deliverStream(request, reply, OPENAI, async function* (signal, watch) {
        const stream = new CompletionStream(head, options);
        for await (const one of generateAll(context, requests, CLIENT_FIELDS, signal, watch)) {
          for (const chunk of stream.take(one.index, one.reply)) yield eventOf(chunk);
        }
        if (fields.stream_options?.include_usage === true) yield eventOf(stream.usage());
        yield STREAM_END;
      });
    });
  }
}

function completionRequests(fields: CompletionFields, { runtime }: DoorContext): GenerateRequest[] {
  const seeds = answerSeeds(fields.seed, fields.n ?? 1, runtime);
  const format = responseFormatFrom(fields.response_format);
  const outputFormat = format === null ? null : jsonFormat(schemaOf(format));
  return promptsFrom(fields).flatMap(({ text, tokenIds }) =>
    seeds.map((seed) => ({
      text: text ?? '',
      messages: [],
      promptTokenIds: tokenIds ?? [],
      raw: tokenIds === null,
      maxTokens: Math.min(fields.max_tokens ?? ALL_ROOM, ALL_ROOM),
      sampling: { ...samplingFrom(fields, seed), outputFormat },
      stop: stopFrom(fields),
      ignoreEos: fields.ignore_eos ?? false,
      // 0 asks for the chosen token's own.
      logprobs: fields.logprobs === undefined ? 0 : Math.max(1, fields.logprobs),
      promptLogprobs: fields.echo === true && fields.logprobs !== undefined,
    })),
  );
}
