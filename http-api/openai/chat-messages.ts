import { z } from 'zod';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { invalidField } from '../fields/field-table.js';

const textPart = z.strictObject({
  type: z.literal('text', { error: "only parts of the type 'text' are supported: no images, audio or files" }),
  text: z.string(),
  cache_control: z.unknown().optional(),
});
const content = z.union([z.string(), z.array(textPart)], { error: 'it must be a text or a list of text parts' });

const toolCall = z.strictObject({
  id: z.string(),
  type: z.literal('function', { error: "only calls of the type 'function' are supported" }).nullish(),
  index: z.number().nullish(),
  function: z.strictObject({ name: z.string().min(1), arguments: z.string() }),
});

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'] as const;

const message = z.strictObject({
  role: z.enum(ROLES, { error: `it must be one of ${ROLES.join(', ')}` }),
  content: content.nullish(),
  name: z.string().nullish(),
  tool_calls: z.array(toolCall).nullish(),
  tool_call_id: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  // Fields of an earlier answer that clients send back.
  refusal: z.literal('', { error: 'refusals are not supported; leave it out' }).nullish(),
  annotations: z.unknown().optional(),
  audio: z.null({ error: 'audio is not supported; leave it out' }).optional(),
  function_call: z.null({ error: 'it is not supported; use tool_calls' }).optional(),
  cache_control: z.unknown().optional(),
});

type MessageParameter = z.infer<typeof message>;

export const messagesField = z
  .array(message)
  .min(1, 'it must hold a message')
  .describe(
    `roles ${ROLES.join(', ')}; \`content\` is a text, or parts of the type \`text\`, which become lines; \`tool_calls\`, \`tool_call_id\`, ` +
      '`name`, `reasoning_content`',
  );

/** Turns the messages of a request into those of the conversation. Throws REQUEST_INVALID with the field. */
export function chatMessagesFrom(messages: readonly MessageParameter[]): ChatMessage[] {
  const toolNames = new Map<string, string>();
  return messages.map((given, index) => {
    const { role, name } = given;
    const calls = given.tool_calls ?? [];
    requireContent(given, index);
    if (calls.length > 0 && role !== 'assistant') {
      throw invalidField(`messages[${index}].tool_calls`, `messages[${index}]: only an assistant calls tools`);
    }
    for (const call of calls) toolNames.set(call.id, call.function.name);
    const answered = role === 'tool' ? requireCallId(given, index) : '';
    const shownName = name ?? toolNames.get(answered) ?? '';
    return {
      role,
      content: contentText(given.content ?? ''),
      ...(calls.length > 0 && { toolCalls: calls.map(({ id, function: called }) => ({ id, ...called })) }),
      ...(answered !== '' && { toolCallId: answered }),
      ...(shownName !== '' && { name: shownName }),
      ...(typeof given.reasoning_content === 'string' && { reasoningContent: given.reasoning_content }),
    };
  });
}

/** An assistant may have calls in place of content, and a tool may have no output. */
function requireContent({ role, content: given }: MessageParameter, index: number): void {
  if (role === 'assistant' || role === 'tool' || (given !== undefined && given !== null)) return;
  const field = `messages[${index}].content`;
  throw invalidField(field, `${field}: it is missing; it must be a text or a list of text parts`);
}

function requireCallId({ tool_call_id: callId }: MessageParameter, index: number): string {
  if (typeof callId === 'string' && callId !== '') return callId;
  const field = `messages[${index}].tool_call_id`;
  throw invalidField(field, `${field}: a tool's message must name the call that it answers`);
}

/** Joins the parts of a content as lines of one text. */
export function contentText(given: string | readonly { text: string }[]): string {
  return typeof given === 'string' ? given : given.map(({ text }) => text).join('\n');
}
