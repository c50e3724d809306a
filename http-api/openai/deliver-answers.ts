import type { FastifyReply, FastifyRequest } from 'fastify';
import type { GenerateReply } from '../../shared/wire/messages.js';
import type { HttpApiContext } from '../http-api-context.js';
import { type AskedAnswers, generateAll } from './answer-requests.js';
import { eventOf, OPENAI, STREAM_END } from './openai-dialect.js';

/** The two forms of the answers to one request; only one of them is made. */
export interface AnswerForms {
  stream: () => { take(index: number, reply: GenerateReply): object[]; usage(): object };
  body: () => { take(index: number, reply: GenerateReply): void; body(): object };
}

interface StreamFields {
  stream?: boolean | undefined;
  stream_options?: { include_usage?: boolean | null | undefined } | undefined;
}

/** Makes chat or text completions and sends them, streamed or as a whole, as the request's fields say. */
export async function deliverAnswers(
  context: HttpApiContext,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
  fields: StreamFields,
  asked: AskedAnswers,
  forms: AnswerForms,
): Promise<void> {
  if (fields.stream !== true) {
    await context.deliverBody(request, reply, OPENAI, async (signal, watch) => {
      const body = forms.body();
      for await (const one of generateAll(context, asked, signal, watch)) body.take(one.index, one.reply);
      return body.body();
    });
    return;
  }
  await context.deliverStream(request, reply, OPENAI, async function* (signal, watch) {
    const stream = forms.stream();
    for await (const one of generateAll(context, asked, signal, watch)) {
      for (const chunk of stream.take(one.index, one.reply)) yield eventOf(chunk);
    }
    if (fields.stream_options?.include_usage === true) yield eventOf(stream.usage());
    yield STREAM_END;
  });
}
