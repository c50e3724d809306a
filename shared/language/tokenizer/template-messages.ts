import { type ExactJson, tryExactJson } from '../../base/json/exact-json.js';
import type { ChatMessage } from '../../wire/messages.js';

/** Form in which a template accepts the content of a message: a text, or a list of parts that are texts. */
export type ContentForm = 'text' | 'list';

/** Form in which a template accepts calls: arguments as an object or as JSON text, and the value of an absent content. */
export interface CallForm {
  arguments: 'object' | 'text';
  noContent: '' | null;
}

/** Kinds of arguments that are not objects, for templates that accept objects. `text`: a JSON string, or invalid JSON. */
export type OddArguments = 'text' | 'list' | 'number' | 'boolean' | 'null';
/** Form in which a template accepts such arguments: as their value, as their text, or as an object whose only property is their text. */
export type OddForm = 'value' | 'text' | 'property';

/** Forms in which a template accepts the parts of messages. By default contents are texts, and odd arguments are values. */
export interface MessageForms {
  /** Form of contents, by role. */
  readonly contents: ReadonlyMap<string, ContentForm>;
  /** null: no message has a call. */
  readonly calls: CallForm | null;
  readonly odd: ReadonlyMap<OddArguments, OddForm>;
}

/** The property for the text of arguments that are not objects. */
const ODD_PROPERTY = 'arguments';

type ToolCall = NonNullable<ChatMessage['toolCalls']>[number];

/** Messages in the form that templates know from OpenAI; empty properties are left out. */
export function templateMessages(messages: readonly ChatMessage[], source: string, forms: MessageForms): object[] {
  const knowsDeveloper = /['"]developer['"]/.test(source);
  const knowsThinking = /\.thinking\b|\[['"]thinking['"]\]/.test(source);
  return messages.map((message) => {
    const { role, content, toolCalls = [], toolCallId = '', name = '', reasoningContent = '' } = message;
    const called = toolCalls.length > 0;
    const thought = reasoningContent !== '';
    return {
      role: role === 'developer' && !knowsDeveloper ? 'system' : role,
      content: contentOf(message, forms),
      ...(called ? { tool_calls: toolCalls.map((call) => templateCall(call, forms)) } : {}),
      ...(toolCallId === '' ? {} : { tool_call_id: toolCallId }),
      ...(name === '' ? {} : { name }),
      ...(thought ? { reasoning_content: reasoningContent } : {}),
      // gpt-oss's template refuses calls with both content and thinking.
      ...(thought && knowsThinking && !(called && content !== '') ? { thinking: reasoningContent } : {}),
    };
  });
}

function contentOf({ role, content, toolCalls = [] }: ChatMessage, { contents, calls }: MessageForms): unknown {
  if (content === '' && toolCalls.length > 0 && calls?.noContent === null) return null;
  return contents.get(role) === 'list' ? [{ type: 'text', text: content }] : content;
}

function templateCall(call: ToolCall, forms: MessageForms): object {
  return {
    ...(call.id === '' ? {} : { id: call.id }),
    type: 'function',
    function: { name: call.name, arguments: argumentsOf(call, forms) },
  };
}

/** Arguments that are passed as an object keep all their digits, and their order. */
function argumentsOf(call: ToolCall, { calls, odd }: MessageForms): unknown {
  const text = textOf(call);
  if (calls?.arguments === 'text') return text;
  const parsed = tryExactJson(text);
  const kind = oddKind(parsed);
  const form = kind === null ? 'value' : odd.get(kind);
  if (form === 'property') return new Map([[ODD_PROPERTY, text]]);
  return form === 'text' || parsed === null ? text : parsed.value;
}

/** The kinds of odd arguments that the messages hold. */
export function oddArgumentsOf(messages: readonly ChatMessage[]): ReadonlySet<OddArguments> {
  const kinds = messages.flatMap(({ toolCalls = [] }) => toolCalls.map((call) => oddKind(tryExactJson(textOf(call)))));
  return new Set(kinds.filter((kind) => kind !== null));
}

function textOf(call: ToolCall): string {
  return call.arguments === '' ? '{}' : call.arguments;
}

/** `parsed`: null if the text is not JSON. */
function oddKind(parsed: { value: ExactJson } | null): OddArguments | null {
  if (parsed === null) return 'text';
  const { value } = parsed;
  if (value instanceof Map) return null;
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'list';
  if (typeof value === 'boolean') return 'boolean';
  return typeof value === 'string' ? 'text' : 'number';
}
