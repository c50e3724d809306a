import type { ChatMessage, TemplateArgument, ToolCall } from '../../shared/wire/messages.js';
import type { ChatRequest, ResponseFormat } from '../conversation/chat-request.js';
import { effortArguments } from '../conversation/reasoning-effort.js';
import { type ReadPart, readText, requireWords, unreadPart } from '../conversation/unread-part.js';
import { invalidField } from '../fields/field-table.js';
import { writtenJson } from '../requests/written-json.js';
import type { OllamaChatFields, GenerateFields, OllamaMessage } from './request-fields.js';

/** The conversation of /api/chat. `template`: the source of the model's chat template. Throws REQUEST_INVALID. */
export function ollamaChat(fields: OllamaChatFields, template: string | null): ChatRequest {
  const tools = fields.tools ?? [];
  return {
    ...thinkingOf(fields.think, template),
    messages: conversationOf(fields.messages ?? []),
    tools: tools.map(({ function: { name, description, parameters } }) => ({
      name,
      description: description ?? '',
      parameters: parameters ?? {},
    })),
    toolChoice: 'auto',
    parallelToolCalls: true,
    responseFormat: responseFormatOf(fields.format),
    continueLast: fields.messages?.at(-1)?.role === 'assistant',
  };
}

/** The conversation that consists of a prompt of /api/generate. */
export function promptChat(fields: GenerateFields, template: string | null): ChatRequest {
  const { system = '', prompt: content = '' } = fields;
  return {
    ...thinkingOf(fields.think, template),
    messages: [...(system === '' ? [] : [{ role: 'system', content: system }]), { role: 'user', content }],
    tools: [],
    toolChoice: 'auto',
    parallelToolCalls: true,
    responseFormat: responseFormatOf(fields.format),
    continueLast: false,
  };
}

export function responseFormatOf(format: OllamaChatFields['format']): ResponseFormat | null {
  if (format === undefined || format === '') return null;
  return format === 'json' ? { kind: 'json_object' } : { kind: 'json_schema', schema: writtenJson(format) };
}

function thinkingOf(
  think: OllamaChatFields['think'],
  template: string | null,
): { thinking: boolean | null; templateArguments: TemplateArgument[] } {
  if (typeof think !== 'string') return { thinking: think ?? null, templateArguments: [] };
  const templateArguments = effortArguments(think, template);
  if (templateArguments !== null) return { thinking: null, templateArguments };
  throw invalidField('think', "think: the model's chat template has no degrees of reasoning; send true or false");
}

/** Gives ids to calls and to their results. If a client sends no id, a result belongs to the first open call of its tool's name. */
function conversationOf(messages: readonly OllamaMessage[]): ChatMessage[] {
  const open: ToolCall[] = [];
  let calls = 0;
  return messages.map(({ role, thinking, tool_calls, tool_name, tool_call_id, ...said }, index) => {
    const parts = partsOf(said);
    if (role === 'user' && index === messages.length - 1) requireWords(parts, `messages[${index}].images`);
    const message: ChatMessage = { role, content: parts.map(({ text }) => text).join('\n') };
    if (role === 'tool') {
      const answered = open.findIndex((call) =>
        tool_call_id ? call.id === tool_call_id : !tool_name || call.name === tool_name,
      );
      const [call] = answered < 0 ? [] : open.splice(answered, 1);
      return { ...message, toolCallId: tool_call_id ?? call?.id ?? '', name: tool_name ?? call?.name ?? '' };
    }
    if (role !== 'assistant') return message;
    const toolCalls = (tool_calls ?? []).map((call): ToolCall => ({
      id: call.id ?? `call_${(calls += 1)}`,
      name: call.function.name,
      arguments: writtenJson(call.function.arguments ?? {}),
    }));
    open.push(...toolCalls);
    return {
      ...message,
      ...(thinking ? { reasoningContent: thinking } : {}),
      ...(toolCalls.length > 0 && { toolCalls }),
    };
  });
}

/** The words of a message, and a part for each image. */
function partsOf({ content, images }: Pick<OllamaMessage, 'content' | 'images'>): ReadPart[] {
  const words = content ? [readText(content)] : [];
  return [...words, ...(images ?? []).map(() => unreadPart('image'))];
}
