import type { GenerateRequest } from '../../shared/wire/messages.js';
import type { ClientFields } from '../answer/client-fields.js';
import type { PreparedChat } from '../conversation/chat-request.js';
import type { Dialect } from '../delivery/dialect.js';
import type { HttpApiContext, RegisterRoutes } from '../http-api-context.js';
import { answerArithmetic, wantedArithmetic } from '../fields/arithmetic-field.js';
import { requireServedModel } from '../fields/model-field.js';
import { generateAll, prepareFor } from './answer-requests.js';
import { OPENAI } from './openai-dialect.js';
import { ResponseAnswer, type ResponseEvent } from './response-events.js';
import { includesLogprobs, readResponseFields, responseChatFrom, type ResponseFields } from './response-fields.js';
import { ALL_ROOM, samplingOfFields, stopFrom } from '../fields/sampling-fields.js';

const CLIENT_FIELDS: ClientFields = {
  text: 'input',
  messages: 'input',
  template_arguments: 'chat_template_kwargs',
  max_tokens: 'max_output_tokens',
  thinking: 'reasoning.effort',
  response_format: 'text.format',
};

/** POST /v1/responses. Answers are not stored. */
export const registerResponseRoutes: RegisterRoutes = (app, context) => {
  for (const path of ['/v1/responses', '/responses']) {
    app.post(path, { config: { dialect: OPENAI } }, async (request, reply) => {
      const fields = readResponseFields(request.body);
      requireServedModel(fields.model, context);
      const { tokenizer } = context.model;
      const { chat, forms, warnings } = responseChatFrom(fields, tokenizer?.chatTemplateSource ?? null);
      const prepared = prepareFor(context, chat, CLIENT_FIELDS);
      const asked = {
        requests: [responseRequest(fields, prepared)],
        answersPerPrompt: 1,
        names: { ...CLIENT_FIELDS, output_format: fields.text?.format ? 'text.format' : 'tools' },
      };
      const answer = new ResponseAnswer(context.runtime.randomId(), responseProperties(fields, warnings, context), {
        tokenizer,
        createParser: (promptEnd) => prepared.createParser(promptEnd),
        logprobs: includesLogprobs(fields),
        showSpecialTokens: prepared.request.showSpecialTokens ?? false,
        topLogprobs: fields.top_logprobs ?? 0,
        forms,
      });
      if (fields.stream !== true) {
        await context.deliverBody(request, reply, OPENAI, async (signal, watch) => {
          for await (const { reply: one } of generateAll(context, asked, signal, watch)) answer.take(one);
          return answer.response();
        });
        return;
      }
      const dialect: Dialect = { ...OPENAI, errorEvent: (error) => eventsText(answer.fail(error)) };
      await context.deliverStream(request, reply, dialect, async function* (signal, watch) {
        for await (const { reply: one } of generateAll(context, asked, signal, watch)) {
          const events = answer.take(one);
          if (events.length > 0) yield eventsText(events);
        }
      });
    });
  }
};

function eventsText(events: readonly ResponseEvent[]): string {
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('');
}

function responseRequest(fields: ResponseFields, { request, outputFormat }: PreparedChat): GenerateRequest {
  return {
    ...request,
    ...wantedArithmetic(fields),
    text: '',
    promptTokenIds: [],
    raw: false,
    maxTokens: Math.min(fields.max_output_tokens ?? ALL_ROOM, ALL_ROOM),
    sampling: { ...samplingOfFields(fields, fields.seed), outputFormat },
    stop: stopFrom(fields),
    ignoreEos: fields.ignore_eos ?? false,
    logprobs: includesLogprobs(fields) ? Math.max(1, fields.top_logprobs ?? 0) : 0,
  };
}

/** Properties of an answer that come from its request. `warnings` is left out where there are none, as in OpenAI's answers. */
function responseProperties(
  fields: ResponseFields,
  warnings: readonly string[],
  { model, runtime }: HttpApiContext,
): object {
  return {
    created_at: Math.floor(runtime.wallMs() / 1000),
    model: model.name,
    system_fingerprint: model.fingerprint,
    ...answerArithmetic(model),
    instructions: fields.instructions ?? null,
    max_output_tokens: fields.max_output_tokens ?? null,
    temperature: fields.temperature ?? 0,
    top_p: fields.top_p ?? 1,
    tools: fields.tools ?? [],
    tool_choice: fields.tool_choice ?? 'auto',
    parallel_tool_calls: fields.parallel_tool_calls ?? true,
    text: {
      format: fields.text?.format ?? { type: 'text' },
      ...(fields.text?.verbosity && { verbosity: fields.text.verbosity }),
    },
    reasoning: { effort: fields.reasoning?.effort ?? null, summary: null },
    truncation: 'disabled',
    background: false,
    store: false,
    previous_response_id: null,
    metadata: fields.metadata ?? {},
    ...(warnings.length > 0 && { warnings }),
  };
}
