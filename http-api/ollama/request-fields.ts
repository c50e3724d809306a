import { z } from 'zod';
import { LOGPROBS_RANGE } from '../../shared/wire/generate-validation.js';
import { type FieldTable, fieldReader, type Fields } from '../fields/field-table.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
import { jsonObject } from '../fields/json-object.js';
import { numberWithin } from '../fields/sampling-fields.js';

const toolCallSchema = z.strictObject({
  id: z.string().nullish(),
  type: z.literal('function').nullish(),
  function: z.strictObject({
    index: z.int().nullish(),
    name: z.string().min(1),
    arguments: jsonObject.nullish(),
  }),
});

const messageSchema = z.strictObject({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: z.string().nullish(),
  thinking: z.string().nullish(),
  images: z.array(z.unknown()).nullish(),
  tool_calls: z.array(toolCallSchema).nullish(),
  tool_name: z.string().nullish(),
  name: z.unknown().optional(),
  tool_call_id: z.string().nullish(),
});

const toolSchema = z.strictObject({
  type: z.literal('function'),
  function: z.strictObject({
    name: z.string().min(1),
    type: z.literal('function').nullish(),
    description: z.string().nullish(),
    parameters: jsonObject.nullish(),
    strict: z.unknown().optional(),
  }),
});

/** Fields that both endpoints accept. */
const ANSWER_FIELDS = {
  model: z.string().describe('the name of `/api/tags`, with or without `:latest`'),
  stream: z.boolean().optional().describe('lines of JSON; default true'),
  options: z.record(z.string(), z.unknown()).optional().describe('see below'),
  format: z
    .union([z.literal('json'), z.literal(''), jsonObject], {
      error: 'it must be "json" or a JSON schema',
    })
    .optional()
    .describe('json, or a JSON schema'),
  think: z
    .union([z.boolean(), z.enum(['low', 'medium', 'high'])])
    .optional()
    .describe('where the chat template lets one say so; low, medium and high where it has degrees of reasoning'),
  keep_alive: z
    .union([z.string(), z.number()])
    .optional()
    .describe('the model stays loaded in any case; 0 without a prompt is answered by `unload`'),
  logprobs: z.boolean().optional().describe('log-probabilities of the tokens of the answer'),
  top_logprobs: numberWithin(LOGPROBS_RANGE).optional().describe('so many of the likeliest tokens with each'),
  ...ARITHMETIC_FIELD,
} as const;

/** A prompt that is too long is refused, and a context is never shifted, whatever these fields say. */
const IGNORED = ['truncate', 'shift'] as const;

export const CHAT_TABLE = {
  done: {
    ...ANSWER_FIELDS,
    messages: z
      .array(messageSchema)
      .optional()
      .describe(
        'roles: system, user, assistant, tool; a last assistant message is continued; a note replaces each of their [`images`](#parts-that-are-no-text); ' +
          'none: the model is loaded',
      ),
    tools: z.array(toolSchema).optional().describe('functions'),
  },
  ignored: IGNORED,
  neutral: {},
  refused: {},
} as const satisfies FieldTable<z.ZodRawShape>;

export const GENERATE_TABLE = {
  done: {
    ...ANSWER_FIELDS,
    prompt: z.string().optional().describe('none: the model is loaded'),
    system: z.string().optional().describe('a system message before the prompt'),
    raw: z.boolean().optional().describe('the prompt as it is, without the chat template'),
  },
  ignored: IGNORED,
  neutral: { suffix: [''], template: [''], context: [[]], images: [[]] },
  refused: {},
} as const satisfies FieldTable<z.ZodRawShape>;

export const SHOW_TABLE = {
  done: {
    model: z.string().optional().describe('the name of `/api/tags`'),
    name: z.string().optional().describe('an older name of `model`'),
  },
  ignored: ['verbose', 'options'],
  neutral: { system: [''], template: [''] },
  refused: {},
} as const satisfies FieldTable<z.ZodRawShape>;

export const readChatBody = fieldReader(CHAT_TABLE);
export const readGenerateBody = fieldReader(GENERATE_TABLE);
export const readShowBody = fieldReader(SHOW_TABLE);

export type OllamaChatFields = Fields<typeof CHAT_TABLE>;
export type GenerateFields = Fields<typeof GENERATE_TABLE>;
export type OllamaMessage = z.infer<typeof messageSchema>;
