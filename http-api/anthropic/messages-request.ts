import { z } from 'zod';
import {
  MAX_TOKENS_RANGE,
  STOP_STRING_LENGTH_LIMIT,
  STOP_STRINGS_LIMIT,
} from '../../shared/wire/generate-validation.js';
import type { TemplateArgument } from '../../shared/wire/messages.js';
import type { ChatRequest, ChatTool, ToolChoice } from '../conversation/chat-request.js';
import { effortArguments } from '../conversation/reasoning-effort.js';
import { type FieldTable, fieldReader, type Fields } from '../fields/field-table.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
import { numberWithin, SAMPLING_FIELDS, SHARED_SAMPLING_FIELDS } from '../fields/sampling-fields.js';
import { fromAnthropicMessages } from './conversation-turns.js';
import {
  messagesSchema,
  outputConfigSchema,
  textSchema,
  thinkingSchema,
  toolChoiceSchema,
  type ToolChoiceParameter,
  toolsSchema,
} from './messages-schema.js';
import { writtenJson } from '../requests/written-json.js';

/** Fields of a conversation that both endpoints share. */
const CONVERSATION_FIELDS = {
  model: z.string().describe('the id of `/v1/models`'),
  messages: messagesSchema.describe(
    'blocks: text, tool_use, tool_result, thinking; a last assistant message is continued',
  ),
  system: textSchema.optional().describe('text, or blocks of text'),
  tools: toolsSchema.optional().describe('custom tools'),
  tool_choice: toolChoiceSchema.optional().describe('auto, any, tool, none; with `disable_parallel_tool_use`'),
  thinking: thinkingSchema
    .optional()
    .describe(
      'enabled or disabled where the chat template lets one say so, adaptive: as it has it; `budget_tokens` bounds nothing: `max_tokens` does',
    ),
  output_config: outputConfigSchema
    .optional()
    .describe(
      '`format` of the type json_schema; `effort` where the chat template has degrees of reasoning, elsewhere it is a hint that changes nothing',
    ),
} as const;

const IGNORED = ['metadata', 'service_tier', 'cache_control', 'user_profile_id', 'workspace_id'];

const NEUTRAL = {
  speed: ['standard'],
  mcp_servers: [[]],
  context_management: [{ edits: [] }, { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] }],
};

const REFUSED = {
  container: 'nothing is run here',
  inference_geo: 'the model runs where its cluster is',
  diagnostics: 'nothing of a prompt is kept for the next one',
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
  neutral: NEUTRAL,
  refused: REFUSED,
} as const satisfies FieldTable<z.ZodRawShape>;

export const COUNT_TOKENS_TABLE = {
  done: CONVERSATION_FIELDS,
  ignored: IGNORED,
  neutral: NEUTRAL,
  refused: REFUSED,
} as const satisfies FieldTable<z.ZodRawShape>;

export const readMessagesBody = fieldReader(MESSAGES_TABLE);
export const readCountTokensBody = fieldReader(COUNT_TOKENS_TABLE);

export type MessagesFields = Fields<typeof MESSAGES_TABLE>;
export type CountTokensFields = Fields<typeof COUNT_TOKENS_TABLE>;

/** The conversation of a request. `template`: the text of the model's chat template. Throws REQUEST_INVALID with the field. */
export function anthropicChat(fields: CountTokensFields, template: string | null): ChatRequest {
  const { system, messages, tools, tool_choice: choice, thinking, output_config: output } = fields;
  const conversation = fromAnthropicMessages(system, messages);
  return {
    messages: conversation,
    tools: (tools ?? []).map(toolOf),
    toolChoice: toolChoiceOf(choice),
    parallelToolCalls: choice === undefined || choice.type === 'none' || choice.disable_parallel_tool_use !== true,
    responseFormat: output?.format ? { kind: 'json_schema', schema: writtenJson(output.format.schema) } : null,
    continueLast: conversation.at(-1)?.role === 'assistant',
    templateArguments: effortOf(output?.effort, template),
    thinking: thinking === undefined || thinking.type === 'adaptive' ? null : thinking.type === 'enabled',
  };
}

/** Agents send an effort to every model; a template without degrees of reasoning has no use for it. */
function effortOf(effort: string | null | undefined, template: string | null): TemplateArgument[] {
  if (effort === undefined || effort === null) return [];
  return effortArguments(effort, template) ?? [];
}

function toolOf({ name, description, input_schema: parameters }: z.infer<typeof toolsSchema>[number]): ChatTool {
  return { name, description: description ?? '', parameters };
}

function toolChoiceOf(choice: ToolChoiceParameter | undefined): ToolChoice {
  switch (choice?.type) {
    case undefined:
    case 'auto':
      return 'auto';
    case 'any':
      return 'required';
    case 'tool':
      return { name: choice.name };
    case 'none':
      return 'none';
  }
}
