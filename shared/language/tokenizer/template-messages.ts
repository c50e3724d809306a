import { type ExactJson, tryExactJson } from '../../base/json/exact-json.js';
import type { ChatMessage } from '../../wire/messages.js';

/** How a template takes the words of a message: as a text, or as a list of parts that are texts. */
export type ContentForm = 'text' | 'list';

/** How a template takes calls: the arguments as an object or as JSON, and what stands for a content that is not there. */
export interface CallForm {
  arguments: 'object' | 'text';
  noContent: '' | null;
}

/** Arguments of a call that are no object, though the template takes objects. `text`: a JSON string, or no JSON at all. */
export type OddArguments = 'text' | 'list' | 'number' | 'boolean' | 'null';
/** How a template takes them: as the value that they are, as their text, or as an object whose one member is their text. */
export type OddForm = 'value' | 'text' | 'member';

/** How a template takes what messages hold. Contents are texts where nothing else is known; odd arguments are values. */
export interface MessageForms {
  /** By role. */
  readonly contents: ReadonlyMap<string, ContentForm>;
  /** null: no message has a call. */
  readonly calls: CallForm | null;
  readonly odd: ReadonlyMap<OddArguments, OddForm>;
}

/** The member that holds the text of arguments which are no object. */
const ODD_MEMBER = 'arguments';

type ToolCall = NonNullable<ChatMessage['toolCalls']>[number];

/** Messages as templates know them from OpenAI; members that hold nothing are not there. */
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
      // gpt-oss's template refuses calls with both.
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

/** Arguments that are handed on as an object have all their digits, and their order. */
function argumentsOf(call: ToolCall, { calls, odd }: MessageForms): unknown {
  const text = textOf(call);
  if (calls?.arguments === 'text') return text;
  const parsed = tryExactJson(text);
  const kind = oddKind(parsed);
  const form = kind === null ? 'value' : odd.get(kind);
  if (form === 'member') return new Map([[ODD_MEMBER, text]]);
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

/** `parsed`: null is no JSON. */
function oddKind(parsed: { value: ExactJson } | null): OddArguments | null {
  if (parsed === null) return 'text';
  const { value } = parsed;
  if (value instanceof Map) return null;
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'list';
  if (typeof value === 'boolean') return 'boolean';
  return typeof value === 'string' ? 'text' : 'number';
}
