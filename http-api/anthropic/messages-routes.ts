import type { GenerationWatch } from '../delivery/generation-watch.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import type { AnswerReaderOptions } from '../answer/answer-reader.js';
import { requireServedModel } from '../fields/model-field.js';
import { boundedWarnings } from '../conversation/bounded-warnings.js';
import type { PreparedChat } from '../conversation/chat-request.js';
import type { HttpApiContext, RegisterRoutes } from '../http-api-context.js';
import { answerArithmetic, wantedArithmetic } from '../fields/arithmetic-field.js';
import { samplingOfFields } from '../fields/sampling-fields.js';
import { MessageBody, MessageStream } from './message-answer.js';
import type { MessageHead } from './message-events.js';
import {
  anthropicChat,
  type CountTokensFields,
  type MessagesFields,
  readCountTokensBody,
  readMessagesBody,
} from './messages-request.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Dialect } from '../delivery/dialect.js';
import { framed, type MessageEvent } from './message-events.js';

/** The parts from which an answer is made. */
interface MessageRequest {
  generate: GenerateRequest;
  head: MessageHead;
  reading: AnswerReaderOptions;
}

/** Anthropic's /v1/messages and /v1/messages/count_tokens, also without /v1. */
export const registerAnthropic: RegisterRoutes = (app, context) => {
  // Anthropic's clients look for the request's id in this header.
  const route = { config: { dialect: ANTHROPIC, requestIdHeader: 'request-id' } };
  for (const prefix of ['/v1', '']) {
    app.post(`${prefix}/messages`, route, async (request, reply) => {
      const fields = readMessagesBody(request.body);
      const message = messageRequest(fields, context);
      if (fields.stream === true) {
        await context.deliverStream(request, reply, ANTHROPIC, (signal, watch) =>
          streamMessage(message, context, signal, watch),
        );
      } else {
        await context.deliverBody(request, reply, ANTHROPIC, (signal, watch) =>
          wholeMessage(message, context, signal, watch),
        );
      }
      return reply;
    });
    app.post(`${prefix}/messages/count_tokens`, route, async (request, reply) => {
      const fields = readCountTokensBody(request.body);
      requireServedModel(fields.model, context);
      const prompt = preparedChat(fields, context).prepared.request;
      await context.deliverBody(request, reply, ANTHROPIC, async (signal) => ({
        input_tokens: (await context.tokenizeChat(prompt, signal)).length,
      }));
      return reply;
    });
  }
};

/** `warnings`: wishes that are not kept. */
function preparedChat(
  fields: CountTokensFields,
  { prepareChat, model }: HttpApiContext,
): { prepared: PreparedChat; warnings: readonly string[] } {
  const { chat, warnings } = anthropicChat(fields, model.tokenizer?.chatTemplateSource ?? null);
  const prepared = prepareChat(chat);
  return { prepared, warnings: boundedWarnings([...warnings, ...prepared.warnings]) };
}

function messageRequest(fields: MessagesFields, context: HttpApiContext): MessageRequest {
  requireServedModel(fields.model, context);
  const { model, runtime } = context;
  const { prepared, warnings } = preparedChat(fields, context);
  const { request, outputFormat } = prepared;
  return {
    generate: {
      text: '',
      promptTokenIds: [],
      raw: false,
      ignoreEos: false,
      logprobs: 0,
      ...request,
      ...wantedArithmetic(fields),
      maxTokens: fields.max_tokens,
      sampling: { ...samplingOfFields(fields, fields.seed), outputFormat },
      stop: fields.stop_sequences ?? [],
    },
    head: {
      id: `msg_${runtime.randomId()}`,
      model: model.name,
      ...answerArithmetic(model),
      ...(warnings.length > 0 && { warnings }),
    },
    reading: {
      tokenizer: model.tokenizer,
      createParser: (promptEnd) => prepared.createParser(promptEnd),
      logprobs: false,
      showSpecialTokens: request.showSpecialTokens ?? false,
    },
  };
}

async function* streamMessage(
  { generate, head, reading }: MessageRequest,
  context: HttpApiContext,
  signal: AbortSignal,
  watch: GenerationWatch,
): AsyncGenerator<string, void, undefined> {
  const stream = new MessageStream(head, reading);
  for await (const reply of context.generate(generate, signal, watch)) {
    const events = stream.take(reply);
    if (events !== '') yield events;
  }
}

async function wholeMessage(
  { generate, head, reading }: MessageRequest,
  context: HttpApiContext,
  signal: AbortSignal,
  watch: GenerationWatch,
): Promise<object> {
  const body = new MessageBody(head, reading);
  for await (const reply of context.generate(generate, signal, watch)) body.take(reply);
  return body.body();
}

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};

export const ANTHROPIC = {
  errorBody: anthropicError,
  streamType: 'text/event-stream; charset=utf-8',
  keepAlive: () => framed({ type: 'ping' }),
  errorEvent: (error: OdmoeError, requestId: string) => framed(anthropicError(error, requestId)),
} satisfies Dialect;

/** Agents know by these words that a conversation has become too long, and shorten it. */
const TOO_LONG = 'prompt is too long';

/** The body of an error, and its event's data. */
interface ErrorBody extends MessageEvent {
  error: { type: string; message: string };
  request_id: string;
}

function anthropicError(error: OdmoeError, requestId: string): ErrorBody {
  const { httpStatus } = error.kind;
  const type = TYPES[httpStatus] ?? (httpStatus < 500 ? 'invalid_request_error' : 'api_error');
  const message = error.code === 'PROMPT_TOO_LONG' ? `${TOO_LONG}: ${error.message}` : error.message;
  return { type: 'error', error: { type, message }, request_id: requestId };
}
