import { z } from 'zod';
import type { ChatMessage } from '../../shared/wire/messages.js';
import { requireWords } from '../conversation/unread-part.js';
import { invalidField } from '../fields/field-table.js';
import { jsonObject } from '../fields/json-object.js';
import { otherType } from '../fields/other-type.js';
import { writtenJson } from '../requests/written-json.js';
import { contentField, contentText, linesOf, readParts } from './content-parts.js';
import {
  CUSTOM_INPUT,
  offeredName,
  offerTools,
  responseTool,
  SEARCH_NAME,
  type ResponseTool,
} from './response-tools.js';

/** Properties of an item that clients send back; they change nothing. */
const itemProperties = {
  id: z.string().nullish(),
  status: z.string().nullish(),
  caller: z.unknown().optional(),
  created_by: z.unknown().optional(),
};
const callProperties = { ...itemProperties, call_id: z.string().min(1) };
const ROLES = ['system', 'developer', 'user', 'assistant'] as const;

const message = z.strictObject({
  ...itemProperties,
  type: z.literal('message'),
  role: z.enum(ROLES, { error: `it must be one of ${ROLES.join(', ')}` }),
  content: contentField,
  phase: z.unknown().optional(),
});
const namedCall = { ...callProperties, name: z.string().min(1), namespace: z.string().nullish() };
const functionCall = z.strictObject({
  ...namedCall,
  type: z.literal('function_call'),
  arguments: z.string(),
  // OpenAI's client adds it to answers that it parses.
  parsed_arguments: z.unknown().optional(),
});
const customCall = z.strictObject({ ...namedCall, type: z.literal('custom_tool_call'), input: z.string() });
const searchCall = z.strictObject({
  ...itemProperties,
  type: z.literal('tool_search_call'),
  call_id: z.string().nullish(),
  execution: z.string().nullish(),
  arguments: jsonObject.nullish(),
});
const searchOutput = z.strictObject({
  ...itemProperties,
  type: z.literal('tool_search_output'),
  call_id: z.string().nullish(),
  execution: z.string().nullish(),
  tools: z.array(responseTool),
});
const additionalTools = z.strictObject({
  ...itemProperties,
  type: z.literal('additional_tools'),
  role: z.string().nullish(),
  tools: z.array(responseTool),
});
/** Calls of tools that OpenAI names and a client runs. Such tools are not offered here, so only conversations from elsewhere hold them. */
const clientCall = z
  .looseObject({ ...callProperties, type: z.enum(['local_shell_call', 'shell_call', 'apply_patch_call']) })
  .transform((given): z.infer<typeof functionCall> => {
    const { type, call_id: callId } = given;
    const rest = Object.entries(given).filter(([name]) => name !== 'type' && !Object.hasOwn(callProperties, name));
    const written = JSON.stringify(Object.fromEntries(rest));
    return { type: 'function_call', call_id: callId, name: type.replace(/_call$/, ''), arguments: written };
  });
const callOutput = z.strictObject({
  ...callProperties,
  type: z.enum(['function_call_output', 'custom_tool_call_output']),
  name: z.string().nullish(),
  output: contentField,
});
/** OpenAI's form of an output of its own shell has the call's id as `id`. */
const clientOutput = z
  .looseObject({
    type: z.enum(['local_shell_call_output', 'shell_call_output', 'apply_patch_call_output']),
    id: z.string().nullish(),
    call_id: z.string().nullish(),
    output: z.union([z.string(), z.array(z.looseObject({}))]).nullish(),
  })
  .transform(({ id, call_id: callId, output: given }): z.infer<typeof callOutput> => {
    const text = typeof given === 'string' ? given : JSON.stringify(given ?? '');
    return { type: 'function_call_output', call_id: callId ?? id ?? '', output: text };
  });
const reasoning = z.strictObject({
  ...itemProperties,
  type: z.literal('reasoning'),
  summary: z.array(z.strictObject({ type: z.literal('summary_text'), text: z.string() })).nullish(),
  content: z.array(z.strictObject({ type: z.literal('reasoning_text'), text: z.string() })).nullish(),
  encrypted_content: z.string().nullish(),
});
const itemReference = z.looseObject({ type: z.literal('item_reference') });

const TALK = [message, functionCall, customCall, callOutput, reasoning] as const;
const READ_TYPES: readonly string[] = [
  'message',
  'function_call',
  'custom_tool_call',
  'function_call_output',
  'custom_tool_call_output',
  'reasoning',
  'tool_search_call',
  'tool_search_output',
  'additional_tools',
  'item_reference',
  'local_shell_call',
  'local_shell_call_output',
  'shell_call',
  'shell_call_output',
  'apply_patch_call',
  'apply_patch_call_output',
];
/** A record of a tool that OpenAI runs, or an item that a client added by itself. */
const otherItem = otherType(READ_TYPES).transform(({ type }) => ({ type: 'other' as const, name: type }));

const item = z.preprocess(
  addType,
  z.union(
    [
      z.discriminatedUnion('type', [
        ...TALK,
        searchCall,
        searchOutput,
        additionalTools,
        clientCall,
        clientOutput,
        itemReference,
      ]),
      otherItem,
    ],
    { error: 'it must be an object with a type or a role' },
  ),
);

/** An item without a type is a message; one with an id alone refers to an item, as OpenAI has it. */
function addType(given: unknown): unknown {
  if (typeof given !== 'object' || given === null || 'type' in given) return given;
  const isReference = 'id' in given && !('role' in given) && !('content' in given);
  return { ...given, type: isReference ? 'item_reference' : 'message' };
}

type InputItem = z.infer<typeof item>;
type CallItem = Extract<InputItem, { type: 'function_call' | 'custom_tool_call' | 'tool_search_call' }>;

export const inputField = z
  .union([z.string().min(1, 'it must not be empty'), z.array(item).min(1, 'it must hold an item')], {
    error: 'it must be a text or a list of items',
  })
  .describe(
    'a text, or items: `message`, `function_call`, `custom_tool_call`, their `..._output`, `reasoning`, `additional_tools`, ' +
      '`tool_search_call`, `tool_search_output`, calls and outputs of `local_shell`, `shell` and `apply_patch`. ' +
      'A note replaces [parts that are no text](#parts-that-are-no-text). What OpenAI has encrypted is not read; records of tools that it runs, and items of other types, are left out with a word in `warnings`. ' +
      '`item_reference` is refused: nothing is stored',
  );

export interface InputConversation {
  messages: ChatMessage[];
  /** Tools that items of the input bring. */
  tools: ResponseTool[];
  /** Types of items that were left out. */
  leftOut: string[];
}

/**
 * The conversation of a request. Adjacent reasoning, texts and calls of an assistant form one message. Throws REQUEST_INVALID with the field.
 */
export function readInput(instructions: string | undefined, input: string | readonly InputItem[]): InputConversation {
  const reader = new InputReader();
  if (instructions !== undefined && instructions !== '')
    reader.messages.push({ role: 'system', content: instructions });
  if (typeof input === 'string') reader.messages.push({ role: 'user', content: input });
  else for (const [index, given] of input.entries()) reader.take(given, index);
  requireNewestWords(input);
  if (reader.messages.length === 0) throw invalidField('input', 'input: it holds no message; send one');
  return { messages: reader.messages, tools: reader.tools, leftOut: [...reader.leftOut] };
}

function requireNewestWords(input: string | readonly InputItem[]): void {
  const newest = typeof input === 'string' ? undefined : input.at(-1);
  if (newest?.type !== 'message' || newest.role !== 'user') return;
  requireWords(readParts(newest.content), `input[${input.length - 1}].content`);
}

class InputReader {
  readonly messages: ChatMessage[] = [];
  readonly tools: ResponseTool[] = [];
  readonly leftOut = new Set<string>();
  private readonly callNames = new Map<string, string>();

  take(given: InputItem, index: number): void {
    switch (given.type) {
      case 'message':
        this.takeMessage(given);
        break;
      case 'reasoning':
        this.takeReasoning(given);
        break;
      case 'function_call':
      case 'custom_tool_call':
      case 'tool_search_call':
        this.takeCall(given);
        break;
      case 'function_call_output':
      case 'custom_tool_call_output':
        this.takeOutput(given.call_id, contentText(given.output));
        break;
      case 'tool_search_output':
        this.tools.push(...given.tools);
        if (given.call_id) this.takeOutput(given.call_id, foundText(given.tools));
        break;
      case 'additional_tools':
        this.tools.push(...given.tools);
        break;
      case 'item_reference':
        throw storedItem(index);
      case 'other':
        this.leftOut.add(given.name);
    }
  }

  private takeMessage({ role, content: given }: Extract<InputItem, { type: 'message' }>): void {
    if (role === 'assistant') this.freshTurn().content = contentText(given);
    else this.messages.push({ role, content: contentText(given) });
  }

  private takeReasoning({ content: texts, summary }: Extract<InputItem, { type: 'reasoning' }>): void {
    const text = linesOf(texts ?? summary ?? []);
    // Encrypted reasoning without a summary says nothing.
    if (text === '') return;
    const turn = this.freshTurn();
    turn.reasoningContent = (turn.reasoningContent ?? '') + text;
  }

  private takeCall(given: CallItem): void {
    if (given.type === 'tool_search_call') {
      if (given.call_id) this.addCall(given.call_id, SEARCH_NAME, writtenJson(given.arguments ?? {}));
      else this.leftOut.add(given.type);
      return;
    }
    const written = given.type === 'function_call' ? given.arguments : JSON.stringify({ [CUSTOM_INPUT]: given.input });
    this.addCall(given.call_id, offeredName(given.namespace, given.name), written);
  }

  private addCall(id: string, name: string, written: string): void {
    this.callNames.set(id, name);
    const turn = this.openTurn() ?? this.newTurn();
    turn.toolCalls = [...(turn.toolCalls ?? []), { id, name, arguments: written }];
  }

  private takeOutput(callId: string, text: string): void {
    const name = this.callNames.get(callId);
    const result = { role: 'tool', content: text, toolCallId: callId };
    this.messages.push(name === undefined ? result : { ...result, name });
  }

  private openTurn(): ChatMessage | null {
    const last = this.messages.at(-1);
    return last?.role === 'assistant' ? last : null;
  }

  private newTurn(): ChatMessage {
    const turn: ChatMessage = { role: 'assistant', content: '' };
    this.messages.push(turn);
    return turn;
  }

  /** The assistant's message that has no more than reasoning so far. */
  private freshTurn(): ChatMessage {
    const open = this.openTurn();
    return open !== null && open.content === '' && open.toolCalls === undefined ? open : this.newTurn();
  }
}

function storedItem(index: number): Error {
  const field = `input[${index}]`;
  return invalidField(
    field,
    `${field} refers to an item by its id, but no items are stored here (store: false); send the item itself. The AI SDK does so with ` +
      'providerOptions: { openai: { store: false } }',
  );
}

/** The result of a search for tools, by the model's names for them. */
function foundText(tools: readonly ResponseTool[]): string {
  return JSON.stringify({ tools: offerTools(tools, []).tools.map(({ name }) => name) });
}
