import { z } from 'zod';
import { boundedWarnings } from '../conversation/bounded-warnings.js';
import type { ChatRequest, ResponseFormat } from '../conversation/chat-request.js';
import { leftOutWarning, shownType } from '../conversation/left-out-tools.js';
import { effortWarning } from '../conversation/reasoning-effort.js';
import {
  maxTokensField,
  REASONING_EFFORTS,
  requireLogprobs,
  STREAM_FIELDS,
  templateWishes,
  topLogprobsField,
} from './chat-fields.js';
import { schemaObject } from './chat-tools.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
import { IGNORED_FIELDS, NEUTRAL_FIELDS, PREDICTION_FIELD, REFUSED_FIELDS } from './other-fields.js';
import { fieldReader, type Fields, type FieldTable } from '../fields/field-table.js';
import { inputField, readInput } from './response-input.js';
import { chooseTools, offerTools, responseTool, responseToolChoice, type CallForm } from './response-tools.js';
import { jsonObject } from '../fields/json-object.js';
import { SAMPLING_FIELDS } from '../fields/sampling-fields.js';
import { writtenJson } from '../requests/written-json.js';

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
/** Parts that clients may ask for besides. Answers here never have them. */
const NEVER_THERE = [
  'reasoning.encrypted_content',
  'web_search_call.action.sources',
  'web_search_call.results',
  'file_search_call.results',
  'code_interpreter_call.outputs',
  'computer_call_output.output.image_url',
  'message.input_image.image_url',
] as const;
const SUMMARIES = ['auto', 'concise', 'detailed', 'none'] as const;

export const RESPONSE_FIELDS = {
  done: {
    input: inputField,
    instructions: z.string().optional().describe('the first message, of the role `system`'),
    model: STREAM_FIELDS.model,
    stream: STREAM_FIELDS.stream.describe('server-sent events of the types that OpenAI names'),
    stream_options: z
      .strictObject({
        include_obfuscation: z.boolean().nullish(),
        include_usage: z.unknown().optional(),
        continuous_usage_stats: z.unknown().optional(),
      })
      .optional()
      .describe('changes nothing: nothing is added to events, and the last one tells the usage'),
    return_progress: STREAM_FIELDS.return_progress,
    max_output_tokens: maxTokensField
      .optional()
      .describe('what the context does not hold is cut off; left out or -1: the room that the prompt leaves'),
    ...SAMPLING_FIELDS,
    ...ARITHMETIC_FIELD,
    tools: z
      .array(responseTool)
      .optional()
      .describe(
        'of the types `function`, `custom` (a function with one text `input`), `namespace` (its tools one by one), `tool_search` with `execution: client`; ' +
          'the others, which OpenAI runs, are left out with a word in `warnings`, in a namespace, too',
      ),
    tool_choice: responseToolChoice
      .optional()
      .describe(
        '`none`, `auto`, `required`, a tool (`function`, `custom`), which then is called, or `allowed_tools`, of which alone the model hears; ' +
          'a tool that OpenAI runs: `auto`, with a word in `warnings`',
      ),
    parallel_tool_calls: z.boolean().optional().describe('false: at most one call where calls are forced'),
    text: z
      .strictObject({
        format: format.nullish(),
        verbosity: z.enum(['low', 'medium', 'high']).nullish(),
      })
      .optional()
      .describe('`format`: `text`, `json_object`, `json_schema`; `verbosity` changes nothing'),
    reasoning: z
      .strictObject({
        effort: z.enum(REASONING_EFFORTS).nullish(),
        summary: z.enum(SUMMARIES).nullish(),
        generate_summary: z.enum(SUMMARIES).nullish(),
        context: z.string().nullish(),
        mode: z.string().nullish(),
      })
      .optional()
      .describe(
        '`effort`: as `reasoning_effort` of chats, but a word in `warnings` where the template has no degrees; the others change nothing: ' +
          'reasoning is sent whole, without a summary',
      ),
    include: z
      .array(
        z.enum([LOGPROBS_INCLUDED, ...NEVER_THERE], {
          error: `only '${LOGPROBS_INCLUDED}' can be included, and what answers here never have, as '${NEVER_THERE[0]}'`,
        }),
      )
      .optional()
      .describe(`\`${LOGPROBS_INCLUDED}\`; \`${NEVER_THERE[0]}\` and the like are taken, and are never there`),
    top_logprobs: topLogprobsField.describe('alternatives of each token, where log-probabilities are included'),
    chat_template_kwargs: jsonObject.optional().describe('variables of the chat template'),
    metadata: z.record(z.string(), z.unknown()).optional().describe('comes back with the answer, and changes nothing'),
  },
  ignored: [...IGNORED_FIELDS.filter((name) => name !== 'metadata'), PREDICTION_FIELD, 'max_tool_calls'],
  // `auto` cuts nothing off: a prompt that does not fit is refused.
  neutral: { ...NEUTRAL_FIELDS, store: [false], background: [false], truncation: ['disabled', 'auto'] },
  refused: {
    ...REFUSED_FIELDS,
    previous_response_id: 'no answer is kept; send the whole conversation as input',
    conversation: 'no conversation is kept; send all of it as input',
    prompt: 'no prompts are kept; send instructions and input',
    context_management: 'a conversation is never shortened',
    moderation: 'nothing is moderated',
  },
} satisfies FieldTable<z.ZodRawShape>;

export type ResponseFields = Fields<typeof RESPONSE_FIELDS>;

export const readResponseFields = fieldReader(RESPONSE_FIELDS);

export interface ResponseChat {
  chat: ChatRequest;
  /** The forms of calls by the model's names of the tools. */
  forms: ReadonlyMap<string, CallForm>;
  /** Wishes of the request that are not kept. */
  warnings: readonly string[];
}

/** The conversation of a request. Throws REQUEST_INVALID with the field. */
export function responseChatFrom(fields: ResponseFields, templateSource: string | null): ResponseChat {
  requireLogprobs(fields.top_logprobs, includesLogprobs(fields), `include: ["${LOGPROBS_INCLUDED}"]`);
  const input = readInput(fields.instructions, fields.input);
  const offered = offerTools(fields.tools ?? [], input.tools);
  const { tools, toolChoice, warning } = chooseTools(fields.tool_choice ?? 'auto', offered);
  const chat = {
    messages: input.messages,
    tools,
    toolChoice,
    parallelToolCalls: fields.parallel_tool_calls ?? true,
    responseFormat: formatFrom(fields.text?.format ?? undefined),
    continueLast: false,
    ...templateWishes(fields.chat_template_kwargs, fields.reasoning?.effort, templateSource),
  };
  const warnings = [
    ...offered.leftOut.map((type) => leftOutWarning('tools', type)),
    ...input.leftOut.map((type) => `input: ${shownType(type)} is left out, because such items are not read here`),
    warning,
    effortWarning('reasoning.effort', fields.reasoning?.effort, templateSource),
  ];
  return { chat, forms: offered.forms, warnings: boundedWarnings(warnings.filter((text) => text !== null)) };
}

export function includesLogprobs({ include = [] }: Pick<ResponseFields, 'include'>): boolean {
  return include.includes(LOGPROBS_INCLUDED);
}

function formatFrom(given: z.infer<typeof format> | undefined): ResponseFormat | null {
  if (given === undefined || given.type === 'text') return null;
  if (given.type === 'json_object') return { kind: 'json_object' };
  return { kind: 'json_schema', schema: writtenJson(given.schema) };
}
