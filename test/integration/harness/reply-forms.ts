/**
 * The forms of answers as the clients' own schemas have them (@ai-sdk/anthropic 3.0.140, @anthropic-ai/sdk 0.137.0, @ai-sdk/openai-compatible 1.0.61,
 * openai 6.49.0). They are strict: an answer has no property that the service leaves out, and null only where those schemas take it.
 * `warnings`, `reasoning_content` and `max_model_len` alone are added here (docs/http.md).
 */
import assert from 'node:assert/strict';
import { z } from 'zod';

const count = z.int().min(0);
const text = z.string();
const warnings = z.array(text.min(1)).min(1).optional();

const messageUsage = z.strictObject({
  input_tokens: count,
  output_tokens: count,
  cache_creation_input_tokens: count,
  cache_read_input_tokens: count,
});
const stopReason = z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use']);
const messageHead = {
  id: text.regex(/^msg_/),
  type: z.literal('message'),
  role: z.literal('assistant'),
  model: text,
  warnings,
};

export const MESSAGE = z.strictObject({
  ...messageHead,
  content: z.array(
    z.discriminatedUnion('type', [
      // `citations` must be a list: null is refused by the AI SDK.
      z.strictObject({ type: z.literal('text'), text }),
      z.strictObject({ type: z.literal('thinking'), thinking: text, signature: text }),
      z.strictObject({ type: z.literal('tool_use'), id: text, name: text, input: z.record(text, z.unknown()) }),
    ]),
  ),
  stop_reason: stopReason,
  stop_sequence: text.nullable(),
  usage: messageUsage,
});

const anthropicError = { error: z.strictObject({ type: text, message: text.min(1) }), request_id: text };

export const MESSAGE_ERROR = z.strictObject({ type: z.literal('error'), ...anthropicError });

const none = z.literal('');

export const MESSAGE_EVENT = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('message_start'),
    message: z.strictObject({
      ...messageHead,
      content: z.tuple([]),
      stop_reason: z.null(),
      stop_sequence: z.null(),
      usage: messageUsage,
    }),
  }),
  z.strictObject({
    type: z.literal('content_block_start'),
    index: count,
    content_block: z.discriminatedUnion('type', [
      z.strictObject({ type: z.literal('text'), text: none }),
      z.strictObject({ type: z.literal('thinking'), thinking: none, signature: none }),
      z.strictObject({ type: z.literal('tool_use'), id: text, name: text, input: z.strictObject({}) }),
    ]),
  }),
  z.strictObject({
    type: z.literal('content_block_delta'),
    index: count,
    delta: z.discriminatedUnion('type', [
      z.strictObject({ type: z.literal('text_delta'), text }),
      z.strictObject({ type: z.literal('thinking_delta'), thinking: text }),
      z.strictObject({ type: z.literal('signature_delta'), signature: text }),
      z.strictObject({ type: z.literal('input_json_delta'), partial_json: text }),
    ]),
  }),
  z.strictObject({ type: z.literal('content_block_stop'), index: count }),
  z.strictObject({
    type: z.literal('message_delta'),
    delta: z.strictObject({ stop_reason: stopReason, stop_sequence: text.nullable() }),
    usage: messageUsage,
  }),
  z.strictObject({ type: z.literal('message_stop') }),
  z.strictObject({ type: z.literal('ping') }),
  z.strictObject({ type: z.literal('error'), ...anthropicError }),
]);

export const TOKEN_COUNT = z.strictObject({ input_tokens: count });

export const ANTHROPIC_MODEL = z.strictObject({
  type: z.literal('model'),
  id: text,
  display_name: text,
  created_at: z.iso.datetime(),
  max_input_tokens: count,
  max_tokens: count,
});

export const ANTHROPIC_MODELS = z.strictObject({
  data: z.array(ANTHROPIC_MODEL).length(1),
  has_more: z.literal(false),
  first_id: text,
  last_id: text,
});

export const OPENAI_MODEL = z.strictObject({
  id: text,
  object: z.literal('model'),
  created: count,
  owned_by: text,
  max_model_len: count,
});

export const OPENAI_MODELS = z.strictObject({ object: z.literal('list'), data: z.array(OPENAI_MODEL).length(1) });

export const OPENAI_ERROR = z.strictObject({
  error: z.strictObject({ message: text.min(1), type: text, param: text.nullable(), code: text }),
});

const usage = z.strictObject({
  prompt_tokens: count,
  completion_tokens: count,
  total_tokens: count,
  prompt_tokens_details: z.strictObject({ cached_tokens: count }),
  completion_tokens_details: z.strictObject({ reasoning_tokens: count }),
});
const scored = { token: text, logprob: z.number(), bytes: z.array(count) };
const logprobs = z.strictObject({
  content: z.array(z.strictObject({ ...scored, top_logprobs: z.array(z.strictObject(scored)) })),
  refusal: z.null(),
});
const answerHead = { id: text, created: count, model: text, system_fingerprint: text };
const chatHead = { ...answerHead, warnings };
const finishReason = z.enum(['stop', 'length', 'tool_calls']);
const called = z.strictObject({ name: text, arguments: text });
const call = z.strictObject({ id: text, type: z.literal('function'), function: called });

export const CHAT = z.strictObject({
  ...chatHead,
  object: z.literal('chat.completion'),
  choices: z
    .array(
      z.strictObject({
        index: count,
        message: z.strictObject({
          role: z.literal('assistant'),
          content: text.nullable(),
          refusal: z.null(),
          reasoning_content: text.optional(),
          tool_calls: z.array(call).min(1).optional(),
        }),
        logprobs: logprobs.nullable(),
        finish_reason: finishReason,
      }),
    )
    .min(1),
  usage,
});

export const CHAT_CHUNK = z.strictObject({
  ...chatHead,
  object: z.literal('chat.completion.chunk'),
  choices: z.array(
    z.strictObject({
      index: count,
      delta: z.strictObject({
        role: z.literal('assistant').optional(),
        content: text.optional(),
        reasoning_content: text.optional(),
        tool_calls: z
          .array(
            z.union([
              z.strictObject({ index: count, ...call.shape }),
              z.strictObject({ index: count, function: z.strictObject({ arguments: text }) }),
            ]),
          )
          .length(1)
          .optional(),
      }),
      logprobs: logprobs.nullable(),
      finish_reason: finishReason.nullable(),
    }),
  ),
  usage: usage.optional(),
});

const completionChoice = {
  text,
  index: count,
  logprobs: z
    .strictObject({
      tokens: z.array(text),
      token_logprobs: z.array(z.number().nullable()),
      top_logprobs: z.array(z.record(text, z.number()).nullable()),
      text_offset: z.array(count),
    })
    .nullable(),
};
const completionHead = { ...answerHead, object: z.literal('text_completion') };
const completionEnd = z.enum(['stop', 'length']);

export const COMPLETION = z.strictObject({
  ...completionHead,
  choices: z.array(z.strictObject({ ...completionChoice, finish_reason: completionEnd })).min(1),
  usage,
});

export const COMPLETION_CHUNK = z.strictObject({
  ...completionHead,
  choices: z.array(z.strictObject({ ...completionChoice, finish_reason: completionEnd.nullable() })),
  usage: usage.optional(),
});

/** A reply of the form. */
export function parsed<Schema extends z.ZodType>(schema: Schema, given: string): z.infer<Schema> {
  const result = schema.safeParse(JSON.parse(given));
  assert.ok(result.success, `${given}\n${result.error === undefined ? '' : z.prettifyError(result.error)}`);
  return result.data;
}

/** The data of the events of a stream, each of the form. An event that has a name has its type as its name. */
export function eventsOf<Schema extends z.ZodType>(schema: Schema, text: string): z.infer<Schema>[] {
  const frames = text.split('\n\n').filter((frame) => frame !== '' && !frame.startsWith(':'));
  return frames.flatMap((frame) => {
    const [, name, data = ''] = /^(?:event: (.*)\n)?data: (.*)$/.exec(frame) ?? assert.fail(`no event: ${frame}`);
    if (data === '[DONE]') return [];
    const event = parsed(schema, data);
    if (name !== undefined) assert.equal((event as { type?: string }).type, name);
    return [event];
  });
}
