import { isRunning, type Answer, type AnswerToken, type ToolCall } from './conversation.js';
import { canGoOn } from './cut-answers.js';
import type { StreamEvent } from './event-stream.js';
import { MainRefusal, type MainError } from './main-refusal.js';

interface TokenEntry {
  token: string;
  logprob: number;
}

/** The fields of a chunk of POST /v1/chat/completions that the page reads. */
interface ChatChunk {
  system_fingerprint?: string;
  choices?: {
    delta?: { content?: string | null; reasoning_content?: string | null; tool_calls?: CallPart[] };
    logprobs?: { content: (TokenEntry & { top_logprobs: TokenEntry[] })[] } | null;
    finish_reason?: string | null;
  }[];
  usage?: {
    prompt_tokens: number;
    completion_tokens: number;
    prompt_tokens_details?: { cached_tokens: number };
  };
  error?: MainError;
}

/** A part of a tool call: the first has id and name, all of them a part of the arguments. */
interface CallPart {
  index: number;
  id?: string;
  function?: { name?: string; arguments?: string };
}

const PROGRESS = 'progress ';
const END = '[DONE]';
const BROKEN = 'The connection to main broke.';
/** A proxy, or another service at main's address, has sent it. */
const NOT_MAIN =
  'What came is no answer of main: check the address, and what stands between this page and main. Then ask again.';

/** Returns the answer after an event of its stream. `nowMs`: time on the page's clock. Throws if the event's data is no JSON. */
export function withStreamEvent(answer: Answer, { kind, text }: StreamEvent, nowMs: number): Answer {
  if (kind === 'comment') return { ...answer, progress: progressWords(text) };
  if (text === END) return answer.state === 'failed' ? answer : { ...answer, state: 'done', progress: '' };
  // The event needs no validation: the page comes from main, so both have the same version.
  const chunk = JSON.parse(text) as ChatChunk;
  if (chunk.error !== undefined) return withThrown(answer, new MainRefusal(chunk.error));
  return withChunk(answer, chunk, nowMs);
}

export function withFailure(answer: Answer, error: string): Answer {
  return { ...answer, state: 'failed', error, progress: '' };
}

/** Returns the answer after this error has ended it. */
export function withThrown(answer: Answer, thrown: unknown): Answer {
  if (thrown instanceof TypeError) return withFailure(answer, brokenWords(answer));
  const failed = withFailure(answer, failureWords(thrown));
  return thrown instanceof MainRefusal ? { ...failed, errorField: thrown.field, errorCode: thrown.code } : failed;
}

/** The message for an error. Browsers report a broken or failed connection by a TypeError, each with its own text. */
export function failureWords(thrown: unknown): string {
  if (thrown instanceof TypeError) return `${BROKEN} Ask again.`;
  if (thrown instanceof SyntaxError) return NOT_MAIN;
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Returns the answer after its stream has ended. `stopped`: the reader stopped it. */
export function withEnd(answer: Answer, stopped: boolean): Answer {
  if (!isRunning(answer)) return answer;
  if (stopped) return { ...answer, state: 'stopped', progress: '' };
  return withFailure(answer, brokenWords(answer));
}

/** The words name Go on if the answer has some text, or had some before it was asked for again. */
function brokenWords(answer: Answer): string {
  const offersGoOn = canGoOn({ ...(answer.came ?? answer), state: 'failed' });
  return `${BROKEN} ${offersGoOn ? 'Press “Go on”, or ask again.' : 'Ask again.'}`;
}

function withChunk(answer: Answer, chunk: ChatChunk, nowMs: number): Answer {
  const next = { ...answer, fingerprint: chunk.system_fingerprint ?? answer.fingerprint };
  if (chunk.usage !== undefined) {
    next.usage = {
      promptTokens: chunk.usage.prompt_tokens,
      cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
      answerTokens: chunk.usage.completion_tokens,
    };
  }
  const choice = chunk.choices?.[0];
  if (choice === undefined) return next;
  const content = choice.delta?.content ?? '';
  const reasoning = choice.delta?.reasoning_content ?? '';
  const calls = choice.delta?.tool_calls ?? [];
  if (content !== '' || reasoning !== '' || calls.length > 0) {
    next.state = 'streaming';
    next.progress = '';
    next.firstMs ??= nowMs;
    next.lastMs = nowMs;
  }
  next.text += content;
  next.reasoning += reasoning;
  next.toolCalls = calls.reduce(withCallPart, next.toolCalls);
  const entries = choice.logprobs?.content ?? [];
  if (entries.length > 0) next.tokens = [...next.tokens, ...entries.map(answerToken)];
  next.finishReason = choice.finish_reason ?? next.finishReason;
  return next;
}

function withCallPart(calls: readonly ToolCall[], { index, id, function: called }: CallPart): readonly ToolCall[] {
  const before = calls[index] ?? { id: '', name: '', arguments: '' };
  const call = {
    id: id ?? before.id,
    name: called?.name ?? before.name,
    arguments: before.arguments + (called?.arguments ?? ''),
  };
  return [...calls.slice(0, index), call, ...calls.slice(index + 1)];
}

function answerToken({ token, logprob, top_logprobs: top }: TokenEntry & { top_logprobs: TokenEntry[] }): AnswerToken {
  return {
    text: token,
    logprob,
    alternatives: top.map(({ token: text, logprob: other }) => ({ text, logprob: other })),
  };
}

/** The progress as text; empty for a comment without progress. */
function progressWords(comment: string): string {
  if (!comment.startsWith(PROGRESS)) return '';
  const progress = JSON.parse(comment.slice(PROGRESS.length)) as {
    phase: string;
    requests_before?: number;
    prompt_tokens_done?: number;
    prompt_tokens?: number;
  };
  if (progress.phase === 'queued') return `Waits; requests before it: ${progress.requests_before ?? 0}`;
  if (progress.phase === 'prefill') {
    return `Reads the prompt: ${progress.prompt_tokens_done ?? 0} of ${progress.prompt_tokens ?? 0} tokens`;
  }
  return '';
}
