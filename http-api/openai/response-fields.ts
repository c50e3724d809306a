import { z } from 'zod';
import type { ChatRequest, ResponseFormat } from '../conversation/chat-request.js';
import {
  maxTokensField,
  REASONING_EFFORTS,
  requireLogprobs,
  STREAM_FIELDS,
  templateWishes,
  topLogprobsField,
} from './chat-fields.js';
import { FUNCTION_FIELDS, ONLY_FUNCTIONS, schemaObject, toolOf } from './chat-tools.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
import { IGNORED_FIELDS, NEUTRAL_FIELDS } from './other-fields.js';
import { fieldReader, type Fields, type FieldTable } from '../fields/field-table.js';
import { inputField, responseMessages } from './response-input.js';
import { jsonObject } from '../fields/json-object.js';
import { SAMPLING_FIELDS } from '../fields/sampling-fields.js';
import { writtenJson } from '../requests/written-json.js';

const tool = z.strictObject({
  type: z.literal('function', { error: ONLY_FUNCTIONS }),
  ...FUNCTION_FIELDS,
});

const format = z.discriminatedUnion(
  'type',
  [
    z.strictObject({ type: z.literal('text') }),
    z.strictObject({ type: z.literal('json_object') }),
    z.strictObject({
      type: z.literal('json_schema'),
      name: z.string(),
      description: z.string().nullish(),
      schema: schemaObject,
      strict: z.boolean().nullish(),
    }),
  ],
  { error: "its type must be 'text', 'json_object' or 'json_schema'" },
);

export const LOGPROBS_INCLUDED = 'message.output_text.logprobs';

export const RESPONSE_FIELDS = {
  done: {
    input: inputField,
    instructions: z.string().optional().describe('the first message, of the role `system`'),
    model: STREAM_FIELDS.model,
    stream: STREAM_FIELDS.stream.describe('server-sent events of the types that OpenAI names'),
    stream_options: z
      .strictObject({ include_obfuscation: z.literal(false, { error: 'it is supported as false only' }).nullish() })
      .optional()
      .describe('`include_obfuscation`: false'),
    return_progress: STREAM_FIELDS.return_progress,
    max_output_tokens: maxTokensField
      .optional()
      .describe('what the context does not hold is cut off; left out or -1: the room that the prompt leaves'),
    ...SAMPLING_FIELDS,
    ...ARITHMETIC_FIELD,
    tools: z.array(tool).optional().describe('of the type `function`'),
    tool_choice: z
      .union(
        [
          z.enum(['none', 'auto', 'required']),
          z.strictObject({ type: z.literal('function', { error: ONLY_FUNCTIONS }), name: z.string() }),
        ],
        { error: "it must be 'none', 'auto', 'required' or a function's name" },
      )
      .optional()
      .describe('`none`, `auto`, `required`, or a function, which then is called'),
    parallel_tool_calls: z.boolean().optional().describe('false: at most one call where calls are forced'),
    text: z
      .strictObject({
        format: format.nullish(),
        verbosity: z.literal('medium', { error: "it is supported as 'medium' only" }).nullish(),
      })
      .optional()
      .describe('`format`: `text`, `json_object`, `json_schema`'),
    reasoning: z
      .strictObject({
        effort: z.enum(REASONING_EFFORTS).nullish(),
        summary: z.literal('auto', { error: "it is supported as 'auto' only" }).nullish(),
      })
      .optional()
      .describe('`effort`: as `reasoning_effort` of chats; `summary`: `auto`, which is none: reasoning is sent whole'),
    include: z
      .array(z.literal(LOGPROBS_INCLUDED, { error: `only '${LOGPROBS_INCLUDED}' can be included` }))
      .optional()
      .describe(`\`${LOGPROBS_INCLUDED}\``),
    top_logprobs: topLogprobsField.describe('alternatives of each token, where log-probabilities are included'),
    chat_template_kwargs: jsonObject.optional().describe('variables of the chat template'),
    metadata: z.record(z.string(), z.unknown()).optional().describe('comes back with the answer, and changes nothing'),
  },
  ignored: IGNORED_FIELDS.filter((name) => name !== 'metadata'),
  neutral: { ...NEUTRAL_FIELDS, store: [false], background: [false], truncation: ['disabled'] },
  refused: {
    previous_response_id: 'no answer is kept; send the whole conversation as input',
    conversation: 'no conversation is kept; send all of it as input',
    prompt: 'no prompts are kept; send instructions and input',
    max_tool_calls: 'no tools are run here',
    context_management: 'a conversation is never shortened',
    moderation: 'nothing is moderated',
  },
} satisfies FieldTable<z.ZodRawShape>;

export type ResponseFields = Fields<typeof RESPONSE_FIELDS>;

export const readResponseFields = fieldReader(RESPONSE_FIELDS);

/** The conversation of a request. Throws REQUEST_INVALID with the field. */
export function responseChatFrom(fields: ResponseFields, templateSource: string | null): ChatRequest {
  requireLogprobs(fields.top_logprobs, includesLogprobs(fields), `include: ["${LOGPROBS_INCLUDED}"]`);
  const { tool_choice: choice = 'auto' } = fields;
  return {
    messages: responseMessages(fields.instructions, fields.input),
    tools: (fields.tools ?? []).map(toolOf),
    toolChoice: typeof choice === 'string' ? choice : { name: choice.name },
    parallelToolCalls: fields.parallel_tool_calls ?? true,
    responseFormat: formatFrom(fields.text?.format ?? undefined),
    continueLast: false,
    ...templateWishes(fields.chat_template_kwargs, fields.reasoning?.effort, templateSource),
  };
}

export function includesLogprobs({ include = [] }: Pick<ResponseFields, 'include'>): boolean {
  return include.includes(LOGPROBS_INCLUDED);
}

function formatFrom(given: z.infer<typeof format> | undefined): ResponseFormat | null {
  if (given === undefined || given.type === 'text') return null;
  if (given.type === 'json_object') return { kind: 'json_object' };
  return { kind: 'json_schema', schema: writtenJson(given.schema) };
}
