import { z } from 'zod';
import { jsonProperties } from '../../shared/base/json/exact-json.js';
import type { ChatRequest } from '../conversation/chat-request.js';
import { effortArguments } from '../conversation/reasoning-effort.js';
import { chatMessagesFrom, messagesField } from './chat-messages.js';
import { responseFormatField, responseFormatFrom, TOOL_FIELDS, toolChoiceFrom, toolsFrom } from './chat-tools.js';
import { writtenJson } from '../requests/written-json.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
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
      include_obfuscation: z.literal(false, { error: 'it is supported as false only' }).nullish(),
    })
    .optional()
    .describe('`include_usage`: a last chunk without choices tells `usage`'),
  return_progress: z.boolean().optional().describe('the comments that keep a stream alive say how far the prompt is'),
} as const;

/** OpenAI stores or counts by these fields; here they have no counterpart. */
export const IGNORED_FIELDS = [
  'user',
  'metadata',
  'service_tier',
  'safety_identifier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
  'keep_alive',
  'cache_control',
  'cache_prompt',
] as const;

/** Fields of other servers besides OpenAI's, with the values that have no effect. */
export const NEUTRAL_FIELDS = {
  store: [false],
  repeat_penalty: [1],
  dry_multiplier: [0],
  dynatemp_range: [0],
  tfs_z: [1],
  typical_p: [1],
  xtc_probability: [0],
  mirostat: [0],
  priority: [0],
  id_slot: [-1],
  n_probs: [0],
  n_predict: [-1],
  repeat_last_n: [-1],
  post_sampling_probs: [false],
  return_tokens: [false],
  min_tokens: [0],
  stop_token_ids: [[]],
  skip_special_tokens: [true],
  spaces_between_special_tokens: [true],
  include_stop_str_in_output: [false],
  use_beam_search: [false],
  length_penalty: [1],
} as const;

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
      .describe('where the chat template has such a variable; `none` asks for no reasoning, elsewhere, too'),
    continue_final_message: z
      .boolean()
      .optional()
      .describe("the last message is an assistant's, and the answer goes on with it"),
    add_generation_prompt: z
      .boolean()
      .optional()
      .describe('false with `continue_final_message` only, true without it only'),
  },
  ignored: IGNORED_FIELDS,
  neutral: {
    ...NEUTRAL_FIELDS,
    best_of: [1],
    echo: [false],
    modalities: [['text']],
    verbosity: ['medium'],
    functions: [[]],
    function_call: ['none', 'auto'],
  },
  refused: {
    audio: 'answers are texts',
    prediction: 'no text can be given in advance',
    web_search_options: 'nothing is searched',
    moderation: 'nothing is moderated',
  },
} satisfies FieldTable<z.ZodRawShape>;

export type OpenaiChatFields = Fields<typeof CHAT_FIELDS>;

export const readChatFields = fieldReader(CHAT_FIELDS);

/** The conversation of a request. `templateSource`: the model's chat template. Throws REQUEST_INVALID with the field. */
export function chatRequestFrom(fields: OpenaiChatFields, templateSource: string | null): ChatRequest {
  requireGenerationPrompt(fields);
  requireLogprobs(fields.top_logprobs, fields.logprobs === true, 'logprobs: true');
  requireFewAlternatives(fields.top_logprobs ?? 0, fields.n ?? 1, 'top_logprobs');
  return {
    messages: chatMessagesFrom(fields.messages),
    tools: toolsFrom(fields),
    toolChoice: toolChoiceFrom(fields),
    parallelToolCalls: fields.parallel_tool_calls ?? true,
    responseFormat: responseFormatFrom(fields.response_format),
    continueLast: fields.continue_final_message ?? false,
    ...templateWishes(fields.chat_template_kwargs, fields.reasoning_effort, templateSource, 'reasoning_effort'),
  };
}

/** `needed`: the field that asks for log-probabilities, without which there are no alternatives. Throws REQUEST_INVALID. */
export function requireLogprobs(top: number | undefined, areAsked: boolean, needed: string): void {
  if (top === undefined || top === 0 || areAsked) return;
  throw invalidField('top_logprobs', `top_logprobs needs ${needed}`);
}

/**
 * The values for the chat template: its variables, and the amount of reasoning if the template has a variable for it. `field`: the client's
 * name of the effort. Throws REQUEST_INVALID, also for a template without that variable.
 */
export function templateWishes(
  variables: Readonly<Record<string, unknown>> | undefined,
  effort: (typeof REASONING_EFFORTS)[number] | null | undefined,
  templateSource: string | null,
  field: string,
): Pick<ChatRequest, 'templateArguments' | 'thinking'> {
  const given = (jsonProperties(writtenJson(variables ?? {})) ?? []).map(({ key, text }) => ({
    name: key,
    value: text,
  }));
  if (effort === undefined || effort === null) return { templateArguments: given, thinking: null };
  if (effort === 'none') return { templateArguments: given, thinking: false };
  const ofEffort = effortArguments(effort, templateSource);
  if (ofEffort !== null) return { templateArguments: [...given, ...ofEffort], thinking: null };
  throw invalidField(
    field,
    `${field}: the model's chat template has no degrees of reasoning; leave it out, or send 'none'`,
  );
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
