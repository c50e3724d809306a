import type { AnswerDelta } from '../conversation/chat-request.js';
import type { AnswerEnd, TokenCounts } from '../answer/answer-reader.js';
import type { ChatLogprob } from '../answer/logprob-entries.js';

/** Fields that all chunks of an answer share, and also its body. */
export interface OpenaiHead {
  id: string;
  /** Seconds since 1970. */
  created: number;
  model: string;
  system_fingerprint: string;
  /** Left out where answers are exact. */
  arithmetic?: string;
  /** Wishes of the request that are not kept; left out where there are none. */
  warnings?: readonly string[];
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
  completion_tokens_details: { reasoning_tokens: number };
}

interface ToolCallDelta {
  index: number;
  id?: string;
  type?: 'function';
  function: { name?: string; arguments: string };
}

export interface ChatDelta {
  role?: 'assistant';
  content?: string;
  reasoning_content?: string;
  tool_calls?: ToolCallDelta[];
}

type FinishReason = AnswerEnd['finishReason'];

export function chatChunk(
  head: OpenaiHead,
  index: number,
  delta: ChatDelta,
  finishReason: FinishReason | null,
  logprobs: readonly ChatLogprob[] | null,
): object {
  const choice = { index, delta, logprobs: logprobsProperty(logprobs), finish_reason: finishReason };
  return { ...chunkHead(head), choices: [choice] };
}

export function usageChunk(head: OpenaiHead, usage: Usage): object {
  return { ...chunkHead(head), choices: [], usage };
}

function chunkHead({ id, ...rest }: OpenaiHead): object {
  return { id, object: 'chat.completion.chunk', ...rest };
}

function logprobsProperty(entries: readonly ChatLogprob[] | null): object | null {
  return entries === null || entries.length === 0 ? null : { content: entries, refusal: null };
}

/** Turns answer deltas into chat deltas; adjacent deltas of one kind are joined. */
export function deltasOf(answerDeltas: readonly AnswerDelta[]): ChatDelta[] {
  const deltas: ChatDelta[] = [];
  for (const answerDelta of answerDeltas) {
    const last = deltas.at(-1);
    if (answerDelta.kind === 'content') {
      if (last?.content === undefined) deltas.push({ content: answerDelta.text });
      else last.content += answerDelta.text;
    } else if (answerDelta.kind === 'reasoning') {
      if (last?.reasoning_content === undefined) deltas.push({ reasoning_content: answerDelta.text });
      else last.reasoning_content += answerDelta.text;
    } else deltas.push({ tool_calls: [toolCallDelta(answerDelta)] });
  }
  return deltas;
}

function toolCallDelta(answerDelta: Extract<AnswerDelta, { kind: 'toolCall' | 'toolArguments' }>): ToolCallDelta {
  const { index } = answerDelta;
  if (answerDelta.kind === 'toolArguments') return { index, function: { arguments: answerDelta.text } };
  return { index, id: answerDelta.id, type: 'function', function: { name: answerDelta.name, arguments: '' } };
}

/** An answer that is not streamed, gathered delta by delta. */
export class ChatChoice {
  private content = '';
  private reasoning = '';
  private readonly calls: { id: string; type: 'function'; function: { name: string; arguments: string } }[] = [];
  private readonly entries: ChatLogprob[] = [];
  private finishReason: FinishReason = 'stop';

  add(answerDeltas: readonly AnswerDelta[], entries: readonly ChatLogprob[], finishReason: FinishReason | null): void {
    for (const answerDelta of answerDeltas) this.addDelta(answerDelta);
    this.entries.push(...entries);
    if (finishReason !== null) this.finishReason = finishReason;
  }

  /** `logprobs`: the request asked for log-probabilities. */
  choice(index: number, logprobs: boolean): object {
    const { content, reasoning, calls } = this;
    const message = {
      role: 'assistant',
      content: content === '' && calls.length > 0 ? null : content,
      refusal: null,
      ...(reasoning !== '' && { reasoning_content: reasoning }),
      ...(calls.length > 0 && { tool_calls: calls }),
    };
    const scored = logprobs ? { content: this.entries, refusal: null } : null;
    return { index, message, logprobs: scored, finish_reason: this.finishReason };
  }

  private addDelta(answerDelta: AnswerDelta): void {
    switch (answerDelta.kind) {
      case 'content':
        this.content += answerDelta.text;
        break;
      case 'reasoning':
        this.reasoning += answerDelta.text;
        break;
      case 'toolCall':
        this.calls[answerDelta.index] = {
          id: answerDelta.id,
          type: 'function',
          function: { name: answerDelta.name, arguments: '' },
        };
        break;
      case 'toolArguments': {
        const call = this.calls[answerDelta.index];
        if (call !== undefined) call.function.arguments += answerDelta.text;
      }
    }
  }
}

export function chatBody({ id, ...rest }: OpenaiHead, choices: readonly object[], usage: Usage): object {
  return { id, object: 'chat.completion', ...rest, choices, usage };
}

/** `answersPerPrompt`: number of adjacent answers to one prompt; its tokens count once. */
export function openaiUsage(answers: readonly TokenCounts[], answersPerPrompt: number): Usage {
  const prompts = answers.filter((_, index) => index % answersPerPrompt === 0);
  const promptTokens = sumOf(prompts, ({ prompt }) => prompt);
  const completionTokens = sumOf(answers, ({ answer }) => answer);
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    // Later answers to a prompt use the rows of its first answer. Only the first one's cached tokens came from other requests.
    prompt_tokens_details: { cached_tokens: sumOf(prompts, ({ cached }) => cached) },
    completion_tokens_details: { reasoning_tokens: sumOf(answers, ({ reasoning }) => reasoning) },
  };
}

function sumOf(answers: readonly TokenCounts[], tokens: (counts: TokenCounts) => number): number {
  return answers.reduce((sum, counts) => sum + tokens(counts), 0);
}
