import { ALTERNATIVES, type AskedSettings } from './chat-settings.js';
import type { Answer, PageConversation, ToolCall, Turn } from './conversation.js';

/** A message in the form of OpenAI's API. */
export interface ChatMessage {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string | null;
  tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
  name?: string;
}

/** The body of the request for an answer: all turns before it but those that its settings drop. */
export function requestBody(conversation: PageConversation, answer: Answer): object {
  const index = conversation.turns.findIndex(({ id }) => id === answer.id);
  const { settings } = answer;
  return {
    messages: requestMessages(conversation.turns.slice(droppedBefore(settings, index), Math.max(0, index)), settings),
    stream: true,
    stream_options: { include_usage: true },
    return_progress: true,
    temperature: settings.temperature,
    top_p: settings.topP,
    ...samplingFields(settings),
    seed: settings.seed,
    ...thinkingFields(settings),
    ...formatFields(settings),
    logprobs: true,
    top_logprobs: settings.alternatives ?? ALTERNATIVES,
  };
}

/** Turns that the request of the answer at this place leaves out. Its own question is always sent, also one that others leave out. */
export function droppedBefore({ droppedTurns = 0 }: Pick<AskedSettings, 'droppedTurns'>, index: number): number {
  return Math.max(0, Math.min(droppedTurns, index - 1));
}

/** The system message, and the turns as messages. Answers that failed without text are left out. */
export function requestMessages(turns: readonly Turn[], { system }: Pick<AskedSettings, 'system'>): ChatMessage[] {
  const first: ChatMessage[] = system === '' ? [] : [{ role: 'system', content: system }];
  return [...first, ...turns.flatMap(turnMessages)];
}

function turnMessages(turn: Turn): ChatMessage[] {
  if (turn.kind === 'answer') {
    const calls = turn.toolCalls.map(requestCall);
    if (turn.text === '' && calls.length === 0) return [];
    if (calls.length === 0) return [{ role: 'assistant', content: turn.text }];
    return [{ role: 'assistant', content: turn.text === '' ? null : turn.text, tool_calls: calls }];
  }
  if (turn.toolResults === undefined) return [{ role: 'user', content: turn.text }];
  return turn.toolResults.map(({ callId, name, content }) => ({ role: 'tool', tool_call_id: callId, name, content }));
}

function requestCall({ id, name, arguments: given }: ToolCall): NonNullable<ChatMessage['tool_calls']>[number] {
  return { id, type: 'function', function: { name, arguments: given } };
}

/** The fields that are not left to main. */
function samplingFields(settings: AskedSettings): object {
  return {
    ...(settings.topK !== null && { top_k: settings.topK }),
    ...(settings.minP !== null && { min_p: settings.minP }),
    ...(settings.repetitionPenalty !== null && { repetition_penalty: settings.repetitionPenalty }),
    ...(settings.presencePenalty !== null && { presence_penalty: settings.presencePenalty }),
    ...(settings.frequencyPenalty !== null && { frequency_penalty: settings.frequencyPenalty }),
    ...(settings.logitBias !== null && { logit_bias: settings.logitBias }),
    ...(settings.maxTokens !== null && { max_tokens: settings.maxTokens }),
    ...(settings.stop.length > 0 && { stop: settings.stop }),
    ...(settings.ignoreEos && { ignore_eos: true }),
    ...(settings.arithmetic !== null && { arithmetic: settings.arithmetic }),
  };
}

function thinkingFields({ thinking, reasoningEffort, templateVariables }: AskedSettings): object {
  return {
    ...(thinking !== null && { enable_thinking: thinking }),
    ...(reasoningEffort !== null && { reasoning_effort: reasoningEffort }),
    ...(templateVariables !== null && { chat_template_kwargs: templateVariables }),
  };
}

function formatFields({ responseFormat, tools, toolChoice, parallelToolCalls }: AskedSettings): object {
  return {
    ...(responseFormat !== null && { response_format: responseFormat }),
    ...(tools.length > 0 && { tools, tool_choice: toolChoiceField(toolChoice) }),
    ...(tools.length > 0 && !parallelToolCalls && { parallel_tool_calls: false }),
  };
}

function toolChoiceField(choice: string): unknown {
  if (['auto', 'none', 'required'].includes(choice)) return choice;
  return { type: 'function', function: { name: choice } };
}
