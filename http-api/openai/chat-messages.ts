import { z } from 'zod';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { requireWords } from '../conversation/unread-part.js';
import { invalidField } from '../fields/field-table.js';
import { contentField, contentText, readParts } from './content-parts.js';

/** Properties that other servers and programs add to an answer. Clients send them back with it. */
const OF_EARLIER_ANSWERS = {
  id: z.unknown().optional(),
  cache_control: z.unknown().optional(),
  extra_content: z.unknown().optional(),
  provider_specific_fields: z.unknown().optional(),
} as const;

const toolCall = z.strictObject({
  ...OF_EARLIER_ANSWERS,
  id: z.string(),
  type: z.literal('function', { error: "only calls of the type 'function' are supported" }).nullish(),
  index: z.number().nullish(),
  function: z.strictObject({
    name: z.string().min(1),
    arguments: z.string(),
    parsed_arguments: z.unknown().optional(),
  }),
});

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'] as const;

const message = z.strictObject({
  role: z.enum(ROLES, { error: `it must be one of ${ROLES.join(', ')}` }),
  content: contentField.nullish(),
  name: z.string().nullish(),
  tool_calls: z.array(toolCall).nullish(),
  tool_call_id: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  reasoning: z.string().nullish(),
  // Fields of an earlier answer that clients send back.
  refusal: z.unknown().optional(),
  annotations: z.unknown().optional(),
  audio: z.null({ error: 'audio is not supported; leave it out' }).optional(),
  function_call: z.null({ error: 'it is not supported; use tool_calls' }).optional(),
  parsed: z.unknown().optional(),
  reasoning_details: z.unknown().optional(),
  thinking_blocks: z.unknown().optional(),
  metadata: z.unknown().optional(),
  ...OF_EARLIER_ANSWERS,
});

type MessageParameter = z.infer<typeof message>;

export const messagesField = z
  .array(message)
  .min(1, 'it must hold a message')
  .describe(
    `roles ${ROLES.join(', ')}; \`content\` is a text, or parts, which become lines; a note replaces [those that are no text](#parts-that-are-no-text); ` +
      '`tool_calls`, `tool_call_id`, ' +
      '`name`, `reasoning_content` (or `reasoning`); what other servers add to an answer is left out',
  );

/** Turns the messages of a request into those of the conversation. Throws REQUEST_INVALID with the field. */
export function chatMessagesFrom(messages: readonly MessageParameter[]): ChatMessage[] {
  const toolNames = new Map<string, string>();
  return messages.map((given, index) => {
    const { role, name } = given;
    const calls = given.tool_calls ?? [];
    requireContent(given, index);
    if (role === 'user' && index === messages.length - 1) {
      requireWords(readParts(given.content ?? ''), `messages[${index}].content`);
    }
    if (calls.length > 0 && role !== 'assistant') {
      throw invalidField(`messages[${index}].tool_calls`, `messages[${index}]: only an assistant calls tools`);
    }
    for (const call of calls) toolNames.set(call.id, call.function.name);
    const answered = role === 'tool' ? requireCallId(given, index) : '';
    const reasoning = given.reasoning_content ?? given.reasoning;
    const shownName = name ?? toolNames.get(answered) ?? '';
    return {
      role,
      content: contentText(given.content ?? ''),
      ...(calls.length > 0 && { toolCalls: calls.map(({ id, function: called }) => ({ id, ...called })) }),
      ...(answered !== '' && { toolCallId: answered }),
      ...(shownName !== '' && { name: shownName }),
      ...(typeof reasoning === 'string' && { reasoningContent: reasoning }),
    };
  });
}

/** An assistant may have calls in place of content, and a tool may have no output. */
function requireContent({ role, content: given }: MessageParameter, index: number): void {
  if (role === 'assistant' || role === 'tool' || (given !== undefined && given !== null)) return;
  const field = `messages[${index}].content`;
  throw invalidField(field, `${field}: it is missing; it must be a text or a list of parts`);
}

function requireCallId({ tool_call_id: callId }: MessageParameter, index: number): string {
  if (typeof callId === 'string' && callId !== '') return callId;
  const field = `messages[${index}].tool_call_id`;
  throw invalidField(field, `${field}: a tool's message must name the call that it answers`);
}
