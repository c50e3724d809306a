import type { ChatMessage } from './chat-request.js';
import type { AskedSettings } from './chat-settings.js';
import { refusalOf } from './main-refusal.js';
import type { JsonObject } from './setting-texts.js';

const TOKENIZE_URL = '/tokenize';
/** It counts the tokens of a whole conversation with all that the chat template adds; no path in OpenAI's dialect does. */
const COUNT_URL = '/v1/messages/count_tokens';

async function post(url: string, body: object, signal: AbortSignal | null): Promise<unknown> {
  const headers = { 'content-type': 'application/json' };
  const reply = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body), signal });
  if (!reply.ok) throw await refusalOf(reply);
  return reply.json();
}

/** The number of tokens in the text. Rejects with MainRefusal, or with the browser's error. */
export async function countTextTokens(content: string, signal: AbortSignal): Promise<number> {
  const { tokens } = (await post(TOKENIZE_URL, { content }, signal)) as { tokens: number[] };
  return tokens.length;
}

/** The number of tokens of a prompt of these messages. Rejects likewise. */
export async function countPromptTokens(
  model: string,
  messages: readonly ChatMessage[],
  settings: Pick<AskedSettings, 'tools' | 'thinking'>,
): Promise<number> {
  const body = countBody(model, messages, settings);
  const { input_tokens: tokens } = (await post(COUNT_URL, body, null)) as { input_tokens: number };
  return tokens;
}

/** The messages and tools in the form of Anthropic's API. */
export function countBody(
  model: string,
  messages: readonly ChatMessage[],
  { tools, thinking }: Pick<AskedSettings, 'tools' | 'thinking'>,
): object {
  const system = messages.find(({ role }) => role === 'system')?.content ?? '';
  return {
    model,
    ...(system !== '' && { system }),
    messages: messages.filter(({ role }) => role !== 'system').map(countedMessage),
    ...(tools.length > 0 && { tools: tools.map(countedTool) }),
    ...(thinking !== null && { thinking: { type: thinking ? 'enabled' : 'disabled' } }),
  };
}

function countedMessage({ role, content, tool_calls: calls = [], tool_call_id: callId = '' }: ChatMessage): object {
  if (role === 'tool') {
    return { role: 'user', content: [{ type: 'tool_result', tool_use_id: callId, content: content ?? '' }] };
  }
  if (calls.length === 0) return { role, content: content ?? '' };
  const text = content === null ? [] : [{ type: 'text', text: content }];
  const uses = calls.map(({ id, function: called }) => ({
    type: 'tool_use',
    id,
    name: called.name,
    input: argumentsOf(called.arguments),
  }));
  return { role, content: [...text, ...uses] };
}

function countedTool({ function: called }: JsonObject): object {
  const { name, description, parameters } = called as { name: string; description?: string; parameters?: object };
  return {
    name,
    ...(description !== undefined && { description }),
    input_schema: parameters ?? { type: 'object', properties: {} },
  };
}

/** An object in any case: cut-off arguments become its only property. */
function argumentsOf(text: string): object {
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {
    // Cut off.
  }
  return { arguments: text };
}
