import { z } from 'zod';
import type { ChatMessage, ToolCall } from '../../shared/wire/messages.js';
import { requireWords } from '../conversation/unread-part.js';
import { invalidField } from '../fields/field-table.js';
import { jsonObject } from '../fields/json-object.js';
import { writtenJson } from '../requests/written-json.js';
import { contentField, contentText, readParts } from './content-parts.js';

/** Properties that other servers and programs add to an answer. Clients send them back with it. */
const OF_EARLIER_ANSWERS = {
  id: z.unknown().optional(),
  cache_control: z.unknown().optional(),
  extra_content: z.unknown().optional(),
  provider_specific_fields: z.unknown().optional(),
} as const;

/** Some clients send the arguments back as the object that they have read from them. */
const callArguments = z.union([z.string(), jsonObject.transform(writtenJson)]);

const toolCall = z.strictObject({
  ...OF_EARLIER_ANSWERS,
  id: z.string(),
  type: z.literal('function', { error: "only calls of the type 'function' are supported" }).nullish(),
  index: z.number().nullish(),
  function: z.strictObject({
    name: z.string().min(1),
    arguments: callArguments,
    parsed_arguments: z.unknown().optional(),
  }),
});

/** OpenAI's older form of a call, which has no id. */
const functionCall = z.strictObject({ name: z.string().min(1), arguments: callArguments });

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool', 'function'] as const;

const message = z.strictObject({
  role: z.enum(ROLES, { error: `it must be one of ${ROLES.join(', ')}` }),
  content: contentField.nullish(),
  name: z.string().nullish(),
  tool_calls: z.array(toolCall).nullish(),
  function_call: functionCall.nullish(),
  tool_call_id: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  reasoning: z.string().nullish(),
  // Fields of an earlier answer that clients send back.
  refusal: z.unknown().optional(),
  annotations: z.unknown().optional(),
  audio: z.null({ error: 'audio is not supported; leave it out' }).optional(),
  parsed: z.unknown().optional(),
  reasoning_details: z.unknown().optional(),
  thinking_blocks: z.unknown().optional(),
  metadata: z.unknown().optional(),
  is_error: z.unknown().optional(),
  timestamp: z.unknown().optional(),
  created_at: z.unknown().optional(),
  createdAt: z.unknown().optional(),
  // A wish of training sets.
  weight: z.unknown().optional(),
  ...OF_EARLIER_ANSWERS,
});

type MessageParameter = z.infer<typeof message>;

export const messagesField = z
  .array(message)
  .min(1, 'it must hold a message')
  .describe(
    `roles ${ROLES.join(', ')}; \`content\` is a text, or parts, which become lines; a note replaces [those that are no text](#parts-that-are-no-text); ` +
      '`tool_calls`, `tool_call_id`, ' +
      '`name`, `reasoning_content` (or `reasoning`); `function_call` and the role function are their older forms; what other servers add to an answer is left out',
  );

/** Turns the messages of a request into those of the conversation. Throws REQUEST_INVALID with the field. */
export function chatMessagesFrom(messages: readonly MessageParameter[]): ChatMessage[] {
  const toolNames = new Map<string, string>();
  /** Ids of calls in the older form, by name: the newest of each. */
  const functionIds = new Map<string, string>();
  return messages.map((given, index) => {
    const { role, name } = given;
    const calls = callsOf(given, index);
    requireContent(given, index);
    if (role === 'user' && index === messages.length - 1) {
      requireWords(readParts(given.content ?? ''), `messages[${index}].content`);
    }
    for (const call of calls) toolNames.set(call.id, call.name);
    if (given.function_call) functionIds.set(given.function_call.name, olderId(index));
    const answered = answeredCall(given, index, functionIds);
    const reasoning = given.reasoning_content ?? given.reasoning;
    const shownName = name ?? toolNames.get(answered) ?? '';
    return {
      role: role === 'function' ? 'tool' : role,
      content: contentText(given.content ?? ''),
      ...(calls.length > 0 && { toolCalls: calls }),
      ...(answered !== '' && { toolCallId: answered }),
      ...(shownName !== '' && { name: shownName }),
      ...(typeof reasoning === 'string' && { reasoningContent: reasoning }),
    };
  });
}

/** A message that has both forms says the same twice. */
function callsOf({ role, tool_calls: calls, function_call: older }: MessageParameter, index: number): ToolCall[] {
  const isNewer = calls !== undefined && calls !== null && calls.length > 0;
  if (!isNewer && !older) return [];
  if (role !== 'assistant') {
    const field = `messages[${index}].${isNewer ? 'tool_calls' : 'function_call'}`;
    throw invalidField(field, `${field}: only an assistant calls tools`);
  }
  if (isNewer) {
    return calls.map(({ id, function: called }) => ({ id, name: called.name, arguments: called.arguments }));
  }
  return older ? [{ id: olderId(index), ...older }] : [];
}

/** Names a call in the older form by its message. */
function olderId(index: number): string {
  return `function_call_${index}`;
}

/** The id of the call that a tool's message answers; empty: it is no tool's. */
function answeredCall(given: MessageParameter, index: number, functionIds: ReadonlyMap<string, string>): string {
  if (given.role === 'tool') return requireCallId(given, index);
  if (given.role !== 'function') return '';
  const id = functionIds.get(given.name ?? '');
  if (id !== undefined) return id;
  const field = `messages[${index}].name`;
  throw invalidField(field, `${field}: no function_call before it has this name`);
}

/** An assistant may have calls in place of content, and a tool may have no output. */
function requireContent({ role, content: given }: MessageParameter, index: number): void {
  if (role === 'assistant' || role === 'tool' || role === 'function' || (given !== undefined && given !== null)) return;
  const field = `messages[${index}].content`;
  throw invalidField(field, `${field}: it is missing; it must be a text or a list of parts`);
}

function requireCallId({ tool_call_id: callId }: MessageParameter, index: number): string {
  if (typeof callId === 'string' && callId !== '') return callId;
  const field = `messages[${index}].tool_call_id`;
  throw invalidField(field, `${field}: a tool's message must name the call that it answers`);
}
