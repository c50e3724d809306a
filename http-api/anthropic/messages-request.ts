import { z } from 'zod';
import {
  MAX_TOKENS_RANGE,
  STOP_STRING_LENGTH_LIMIT,
  STOP_STRINGS_LIMIT,
} from '../../shared/wire/generate-validation.js';
import type { ChatRequest } from '../conversation/chat-request.js';
import { shownType } from '../conversation/left-out-tools.js';
import { effortArguments, effortWarning } from '../conversation/reasoning-effort.js';
import { type FieldTable, fieldReader, type Fields } from '../fields/field-table.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
import { numberWithin, SAMPLING_FIELDS, SHARED_SAMPLING_FIELDS } from '../fields/sampling-fields.js';
import { fromAnthropicMessages } from './conversation-turns.js';
import {
  contextSchema,
  formatSchema,
  messagesSchema,
  outputConfigSchema,
  textSchema,
  thinkingSchema,
} from './messages-schema.js';
import { chosenTools, toolChoiceField, toolServersField, toolsField } from './message-tools.js';
import { writtenJson } from '../requests/written-json.js';

/** Fields of a conversation that both endpoints share. */
const CONVERSATION_FIELDS = {
  model: z.string().describe('the id of `/v1/models`'),
  messages: messagesSchema.describe(
    'blocks: text, tool_use, tool_result, thinking; what is in others is read, or a note replaces them ([see above](#anthropic)); ' +
      'a last assistant message is continued',
  ),
  system: textSchema.optional().describe('text, or blocks of text; a note replaces others'),
  tools: toolsField
    .optional()
    .describe('custom tools; those with a type of Anthropic are left out with a word in `warnings`'),
  tool_choice: toolChoiceField
    .optional()
    .describe(
      'auto, any, tool, none; with `disable_parallel_tool_use`. A tool that is left out: auto, with a word in `warnings`',
    ),
  mcp_servers: toolServersField.optional().describe('left out with a word in `warnings`'),
  thinking: thinkingSchema
    .optional()
    .describe(
      'enabled or disabled where the chat template lets one say so, elsewhere a hint with a word in `warnings`; adaptive: as the template has it; ' +
        '`budget_tokens` bounds nothing: `max_tokens` does; `display` changes nothing: thoughts are sent whole',
    ),
  output_config: outputConfigSchema
    .optional()
    .describe(
      '`format` of the type json_schema; `effort` where the chat template has degrees of reasoning, elsewhere it is a hint with a word in `warnings`; ' +
        '`task_budget` changes nothing',
    ),
  output_format: formatSchema.optional().describe('an older name of `output_config.format`'),
  container: z
    .union([z.string(), z.looseObject({})])
    .optional()
    .describe('left out with a word in `warnings`: nothing is run here'),
  context_management: contextSchema
    .optional()
    .describe(
      '`edits` are left out with a word in `warnings`: a conversation is never shortened. Thoughts are kept as the chat template keeps them',
    ),
} as const;

/** The edit that, with `keep: all`, edits nothing. */
const KEPT_THOUGHTS = 'clear_thinking_20251015';

const IGNORED = [
  'metadata',
  'service_tier',
  'cache_control',
  'user_profile_id',
  'workspace_id',
  'betas',
  'anthropic_beta',
  'anthropic_version',
  'inference_geo',
  'speed',
  'diagnostics',
  'fallbacks',
  'fallback_credit_token',
];

const REFUSED = {
  compaction: 'a conversation is never shortened',
  safeguards: 'nothing is moderated',
};

export const MESSAGES_TABLE = {
  done: {
    ...CONVERSATION_FIELDS,
    max_tokens: numberWithin(MAX_TOKENS_RANGE).describe('clamped to the room that the prompt leaves'),
    stream: z.boolean().optional().describe('events as Anthropic has them; default false'),
    stop_sequences: z
      .array(z.string().min(1).max(STOP_STRING_LENGTH_LIMIT))
      .max(STOP_STRINGS_LIMIT)
      .optional()
      .describe('the answer names the one that ended it'),
    ...SHARED_SAMPLING_FIELDS,
    ...ARITHMETIC_FIELD,
    repetition_penalty: SAMPLING_FIELDS.repetition_penalty,
    seed: SAMPLING_FIELDS.seed,
  },
  ignored: IGNORED,
  neutral: {},
  refused: REFUSED,
} as const satisfies FieldTable<z.ZodRawShape>;

export const COUNT_TOKENS_TABLE = {
  done: CONVERSATION_FIELDS,
  ignored: IGNORED,
  neutral: {},
  refused: REFUSED,
} as const satisfies FieldTable<z.ZodRawShape>;

export const readMessagesBody = fieldReader(MESSAGES_TABLE);
export const readCountTokensBody = fieldReader(COUNT_TOKENS_TABLE);

export type MessagesFields = Fields<typeof MESSAGES_TABLE>;
export type CountTokensFields = Fields<typeof COUNT_TOKENS_TABLE>;

/** A request's conversation, and its wishes that are not kept. */
export interface AnthropicChat {
  chat: ChatRequest;
  warnings: readonly string[];
}

/** `template`: the text of the model's chat template. Throws REQUEST_INVALID with the field. */
export function anthropicChat(fields: CountTokensFields, template: string | null): AnthropicChat {
  const { system, messages, tool_choice: choice, thinking, output_config: output } = fields;
  const conversation = fromAnthropicMessages(system, messages);
  const { chosen, warnings } = chosenTools(fields);
  const format = output?.format ?? fields.output_format;
  const effort = output?.effort ?? null;
  const chat: ChatRequest = {
    messages: conversation,
    ...chosen,
    parallelToolCalls: choice === undefined || choice.type === 'none' || choice.disable_parallel_tool_use !== true,
    responseFormat: format ? { kind: 'json_schema', schema: writtenJson(format.schema) } : null,
    continueLast: conversation.at(-1)?.role === 'assistant',
    templateArguments: effort === null ? [] : (effortArguments(effort, template) ?? []),
    thinking: thinking === undefined || thinking.type === 'adaptive' ? null : thinking.type === 'enabled',
    // Agents send the same wish to every model.
    isThinkingHint: true,
  };
  const effortWord = effortWarning('output_config.effort', effort, template);
  return { chat, warnings: [...warnings, ...unkeptWishes(fields), ...(effortWord === null ? [] : [effortWord])] };
}

function unkeptWishes({ container, context_management: context }: CountTokensFields): string[] {
  const edits = (context?.edits ?? []).filter(({ type, keep }) => !(type === KEPT_THOUGHTS && keep === 'all'));
  return [
    ...(container === undefined ? [] : ['container is left out, because nothing is run here']),
    ...edits.map(
      ({ type }) => `context_management: ${shownType(type)} is left out, because a conversation is never shortened`,
    ),
  ];
}
