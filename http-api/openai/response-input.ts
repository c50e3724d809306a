import { contentText } from './chat-messages.js';
import { z } from 'zod';
import type { ChatMessage } from '../../shared/wire/messages.js';

const textPart = z.strictObject({
  type: z.enum(['input_text', 'output_text', 'text'], {
    error: "only parts of the types 'input_text' and 'output_text' are supported: no images, audio or files",
  }),
  text: z.string(),
  annotations: z.unknown().optional(),
  logprobs: z.unknown().optional(),
  prompt_cache_breakpoint: z.unknown().optional(),
});
const content = z.union([z.string(), z.array(textPart)], { error: 'it must be a text or a list of text parts' });
/** Properties of an item that clients send back; they change nothing. */
const itemProperties = { id: z.string().nullish(), status: z.string().nullish() };
const ROLES = ['system', 'developer', 'user', 'assistant'] as const;

const message = z.strictObject({
  ...itemProperties,
  type: z.literal('message').optional(),
  role: z.enum(ROLES, { error: `it must be one of ${ROLES.join(', ')}` }),
  content,
  phase: z.unknown().optional(),
});
const functionCall = z.strictObject({
  ...itemProperties,
  type: z.literal('function_call'),
  call_id: z.string().min(1),
  name: z.string().min(1),
  arguments: z.string(),
});
const functionCallOutput = z.strictObject({
  ...itemProperties,
  type: z.literal('function_call_output'),
  call_id: z.string().min(1),
  output: content,
});
const reasoning = z.strictObject({
  ...itemProperties,
  type: z.literal('reasoning'),
  summary: z.array(z.strictObject({ type: z.literal('summary_text'), text: z.string() })).nullish(),
  content: z.array(z.strictObject({ type: z.literal('reasoning_text'), text: z.string() })).nullish(),
  encrypted_content: z.null({ error: 'no reasoning is encrypted here; leave it out' }).optional(),
});

/** An item without a type is a message. */
const item = z.preprocess(
  (given) =>
    typeof given === 'object' && given !== null && !('type' in given) ? { ...given, type: 'message' } : given,
  z.discriminatedUnion(
    'type',
    [message.extend({ type: z.literal('message') }), functionCall, functionCallOutput, reasoning],
    {
      error: "its type must be 'message', 'function_call', 'function_call_output' or 'reasoning'",
    },
  ),
);

type InputItem = z.infer<typeof item>;

export const inputField = z
  .union([z.string().min(1, 'it must not be empty'), z.array(item).min(1, 'it must hold an item')], {
    error: 'it must be a text or a list of items',
  })
  .describe('a text, or items: `message`, `function_call`, `function_call_output`, `reasoning`');

/** The conversation of a request. Adjacent reasoning, texts and calls of an assistant form one message. */
export function responseMessages(
  instructions: string | undefined,
  input: string | readonly InputItem[],
): ChatMessage[] {
  const messages: ChatMessage[] = [];
  if (instructions !== undefined && instructions !== '') messages.push({ role: 'system', content: instructions });
  if (typeof input === 'string') return [...messages, { role: 'user', content: input }];
  const toolNames = new Map<string, string>();
  for (const given of input) {
    if (given.type === 'function_call_output') {
      const name = toolNames.get(given.call_id);
      const output = { role: 'tool', content: contentText(given.output), toolCallId: given.call_id };
      messages.push(name === undefined ? output : { ...output, name });
    } else if (given.type === 'message' && given.role !== 'assistant') {
      messages.push({ role: given.role, content: contentText(given.content) });
    } else {
      if (given.type === 'function_call') toolNames.set(given.call_id, given.name);
      addToAssistant(messages, given);
    }
  }
  return messages;
}

function addToAssistant(messages: ChatMessage[], given: Exclude<InputItem, { type: 'function_call_output' }>): void {
  const last = messages.at(-1);
  const open = last?.role === 'assistant' ? last : null;
  if (given.type === 'function_call') {
    const call = { id: given.call_id, name: given.name, arguments: given.arguments };
    const turn = open ?? { role: 'assistant', content: '' };
    turn.toolCalls = [...(turn.toolCalls ?? []), call];
    if (open === null) messages.push(turn);
    return;
  }
  const isFresh = open !== null && open.content === '' && open.toolCalls === undefined;
  const turn: ChatMessage = isFresh ? open : { role: 'assistant', content: '' };
  if (given.type === 'message') turn.content = contentText(given.content);
  else turn.reasoningContent = (turn.reasoningContent ?? '') + reasoningText(given);
  if (!isFresh) messages.push(turn);
}

function reasoningText({ content: texts, summary }: Extract<InputItem, { type: 'reasoning' }>): string {
  return contentText(texts ?? summary ?? []);
}
