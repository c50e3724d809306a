import { z } from 'zod';
import { jsonProperties } from '../../shared/base/json/exact-json.js';
import type { TemplateArgument } from '../../shared/wire/messages.js';
import { boundedWarnings } from '../conversation/bounded-warnings.js';
import type { ChatRequest } from '../conversation/chat-request.js';
import { effortArguments } from '../conversation/reasoning-effort.js';
import { chatMessagesFrom, messagesField } from './chat-messages.js';
import { chosenTools, responseFormatField, responseFormatFrom, TOOL_FIELDS } from './chat-tools.js';
import { writtenJson } from '../requests/written-json.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
import { IGNORED_FIELDS, NEUTRAL_FIELDS, REFUSED_FIELDS } from './other-fields.js';
import { fieldReader, invalidField, type Fields, type FieldTable } from '../fields/field-table.js';
import { jsonObject } from '../fields/json-object.js';
import { ALL_ROOM, numberWithin, SAMPLING_FIELDS } from '../fields/sampling-fields.js';

/** Most answers to one prompt. */
export const CHOICES_LIMIT = 128;

/** A number above the context's size is not refused. As in other servers, -1 means all positions that are left. */
export const maxTokensField = numberWithin({
  least: -1,
  most: Number.MAX_SAFE_INTEGER,
  whole: true,
  zeroIsOff: false,
}).transform((value) => (value === -1 ? ALL_ROOM : value));

/** Most alternatives of each token, and most of one request: its answers together, for one token each. */
const TOP_LOGPROBS_LIMIT = 128;
const ALTERNATIVES_LIMIT = 1024;

export const topLogprobsField = numberWithin({
  least: 0,
  most: TOP_LOGPROBS_LIMIT,
  whole: true,
  zeroIsOff: false,
}).optional();

/** Limits the size of an answer that is not streamed. Throws REQUEST_INVALID. */
export function requireFewAlternatives(top: number, answers: number, field: string): void {
  if (top * answers <= ALTERNATIVES_LIMIT) return;
  throw invalidField(
    field,
    `${field}: ${top} alternatives for each token of ${answers} answers were asked for; a request takes ${ALTERNATIVES_LIMIT} together`,
  );
}

export const choicesField = numberWithin({ least: 1, most: CHOICES_LIMIT, whole: true, zeroIsOff: false }).optional();

/** Fields of chat and text completions besides those of sampling. */
export const STREAM_FIELDS = {
  model: z
    .string()
    .optional()
    .describe('left out, or the id that `/v1/models` tells; another is 404 `model_not_found`'),
  stream: z.boolean().optional().describe('server-sent events'),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().nullish(),
      include_obfuscation: z.unknown().optional(),
      continuous_usage_stats: z.unknown().optional(),
    })
    .optional()
    .describe('`include_usage`: a last chunk without choices tells `usage`'),
  repeat_penalty: SAMPLING_FIELDS.repetition_penalty.describe('another name of `repetition_penalty`'),
  return_progress: z.boolean().optional().describe('the comments that keep a stream alive say how far the prompt is'),
} as const;

const predictionField = z
  .looseObject({
    type: z.literal('content'),
    content: z.union([z.string(), z.array(z.looseObject({ type: z.literal('text'), text: z.string() }))]),
  })
  .optional()
  .describe(
    '`content`: a text, or parts of type `text`, that the answer is likely to repeat, such as the file that it changes; it makes the answer faster where ' +
      'main drafts, and changes nothing in it',
  );

/** The text that a client expects in the answer; empty: none. */
export function expectedText({ prediction }: Pick<OpenaiChatFields, 'prediction'>): string {
  const content = prediction?.content ?? '';
  return typeof content === 'string' ? content : content.map(({ text }) => text).join('');
}

export const REASONING_EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;

export const CHAT_FIELDS = {
  done: {
    messages: messagesField,
    ...STREAM_FIELDS,
    max_completion_tokens: maxTokensField
      .optional()
      .describe(
        'what the context does not hold is cut off; left out or -1: the room that the prompt leaves. 0 runs the prompt alone',
      ),
    max_tokens: maxTokensField.optional().describe('the older name of `max_completion_tokens`'),
    n: choicesField.describe(`answers, up to ${CHOICES_LIMIT}; answer i has the seed \`seed + i\``),
    ...SAMPLING_FIELDS,
    ...ARITHMETIC_FIELD,
    logprobs: z.boolean().optional().describe('an entry for each token of the content and for the one that ends it'),
    top_logprobs: topLogprobsField.describe(
      `with \`logprobs\`: alternatives of each token, up to ${TOP_LOGPROBS_LIMIT}`,
    ),
    ...TOOL_FIELDS,
    response_format: responseFormatField,
    chat_template_kwargs: jsonObject.optional().describe('variables of the chat template, such as `enable_thinking`'),
    reasoning_effort: z
      .enum(REASONING_EFFORTS)
      .optional()
      .describe(
        'a hint: it counts where the chat template has such a variable; `none` asks for no reasoning, elsewhere, too',
      ),
    reasoning: z
      .looseObject({ effort: z.enum(REASONING_EFFORTS).nullish(), enabled: z.boolean().nullish() })
      .optional()
      .describe('`effort` as `reasoning_effort`; `enabled: false` asks for no reasoning; the rest changes nothing'),
    enable_thinking: z.boolean().optional().describe('the same as in `chat_template_kwargs`'),
    thinking: z
      .looseObject({ type: z.string() })
      .optional()
      .describe('`type`: with `disabled` `enable_thinking` is false, else true'),
    continue_final_message: z
      .boolean()
      .optional()
      .describe("the last message is an assistant's, and the answer goes on with it"),
    prediction: predictionField,
    add_generation_prompt: z
      .boolean()
      .optional()
      .describe('false with `continue_final_message` only, true without it only'),
  },
  ignored: [...IGNORED_FIELDS, 'store'],
  neutral: {
    ...NEUTRAL_FIELDS,
    // The chat template writes all of them.
    add_special_tokens: [false],
    best_of: [1],
    echo: [false],
    modalities: [['text']],
    functions: [[]],
    function_call: ['none', 'auto'],
  },
  refused: {
    ...REFUSED_FIELDS,
    audio: 'answers are texts',
    web_search_options: 'nothing is searched',
    moderation: 'nothing is moderated',
  },
} satisfies FieldTable<z.ZodRawShape>;

export type OpenaiChatFields = Fields<typeof CHAT_FIELDS>;

export const readChatFields = fieldReader(CHAT_FIELDS);

/** The conversation of a request, and its wishes that are not kept. */
export interface OpenaiChat {
  chat: ChatRequest;
  warnings: readonly string[];
}

/** `templateSource`: the model's chat template. Throws REQUEST_INVALID with the field. */
export function openaiChat(fields: OpenaiChatFields, templateSource: string | null): OpenaiChat {
  requireGenerationPrompt(fields);
  requireLogprobs(fields.top_logprobs, fields.logprobs === true, 'logprobs: true');
  requireFewAlternatives(fields.top_logprobs ?? 0, fields.n ?? 1, 'top_logprobs');
  const wishes = templateWishes(fields.chat_template_kwargs, effortOf(fields), templateSource);
  const given = new Set(wishes.templateArguments.map(({ name }) => name));
  const { chosen, warnings } = chosenTools(fields);
  const chat = {
    messages: chatMessagesFrom(fields.messages),
    ...chosen,
    parallelToolCalls: fields.parallel_tool_calls ?? true,
    responseFormat: responseFormatFrom(fields.response_format),
    continueLast: fields.continue_final_message ?? false,
    ...wishes,
    templateArguments: [
      ...thinkingArguments(fields).filter(({ name }) => !given.has(name)),
      ...wishes.templateArguments,
    ],
  };
  return { chat, warnings: boundedWarnings(warnings) };
}

/** The wish for or against reasoning in the words of other servers, as a variable of the chat template. */
function thinkingArguments({ enable_thinking: enabled, thinking }: OpenaiChatFields): TemplateArgument[] {
  const wished = enabled ?? (thinking === undefined ? undefined : thinking.type !== 'disabled');
  return wished === undefined ? [] : [{ name: 'enable_thinking', value: JSON.stringify(wished) }];
}

function effortOf({
  reasoning_effort: effort,
  reasoning,
}: OpenaiChatFields): (typeof REASONING_EFFORTS)[number] | null {
  return effort ?? (reasoning?.enabled === false ? 'none' : (reasoning?.effort ?? null));
}

/** `needed`: the field that asks for log-probabilities, without which there are no alternatives. Throws REQUEST_INVALID. */
export function requireLogprobs(top: number | undefined, areAsked: boolean, needed: string): void {
  if (top === undefined || top === 0 || areAsked) return;
  throw invalidField('top_logprobs', `top_logprobs needs ${needed}`);
}

/** The values for the chat template: its variables, and the amount of reasoning if the template has a variable for it. */
export function templateWishes(
  variables: Readonly<Record<string, unknown>> | undefined,
  effort: (typeof REASONING_EFFORTS)[number] | null | undefined,
  templateSource: string | null,
): Pick<ChatRequest, 'templateArguments' | 'thinking'> {
  const given = (jsonProperties(writtenJson(variables ?? {})) ?? []).map(({ key, text }) => ({
    name: key,
    value: text,
  }));
  if (effort === undefined || effort === null) return { templateArguments: given, thinking: null };
  if (effort === 'none') return { templateArguments: given, thinking: false };
  return { templateArguments: [...given, ...(effortArguments(effort, templateSource) ?? [])], thinking: null };
}

function requireGenerationPrompt({ add_generation_prompt: add, continue_final_message: goOn }: OpenaiChatFields): void {
  if (add === undefined || add !== (goOn ?? false)) return;
  throw invalidField(
    'add_generation_prompt',
    add
      ? 'add_generation_prompt begins a new message, and continue_final_message goes on with the last; leave one of them out'
      : 'add_generation_prompt is false, so that the answer can only go on with the last message: send continue_final_message, too',
  );
}
