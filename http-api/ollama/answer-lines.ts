import { jsonProperties } from '../../shared/base/json/exact-json.js';
import { JsonText } from '../delivery/json-text.js';
import type { AnswerDelta } from '../conversation/chat-request.js';
import type { ChatLogprob } from '../answer/logprob-entries.js';

/** A call of a tool in Ollama's form: complete, with its arguments as an object. */
export interface OllamaToolCall {
  id: string;
  function: { index: number; name: string; arguments: JsonText };
}

/** A part of an answer, or the whole answer. */
export interface AnswerPart {
  content: string;
  thinking: string;
  toolCalls: OllamaToolCall[];
  logprobs: ChatLogprob[];
}

export function emptyPart(): AnswerPart {
  return { content: '', thinking: '', toolCalls: [], logprobs: [] };
}

/** The two endpoints of Ollama that give answers. */
export type Endpoint = 'chat' | 'generate';

/** The fields that begin every answer. */
export interface OllamaHead {
  model: string;
  /** RFC 3339. */
  created_at: string;
  /** Left out where answers are exact. */
  arithmetic?: string;
}

/** A line of a stream with a part of the answer. */
export function partLine(endpoint: Endpoint, head: OllamaHead, part: AnswerPart): object {
  return { ...head, ...partFields(endpoint, part), done: false };
}

/** The last line of a stream, or an answer that is not streamed; the latter has the whole text. */
export function lastLine(endpoint: Endpoint, head: OllamaHead, part: AnswerPart, end: OllamaEnd): object {
  return { ...head, ...partFields(endpoint, part), done: true, ...end };
}

function partFields(endpoint: Endpoint, { content, thinking, toolCalls, logprobs }: AnswerPart): object {
  const thought = thinking === '' ? {} : { thinking };
  const scored = logprobs.length === 0 ? {} : { logprobs };
  if (endpoint === 'generate') return { response: content, ...thought, ...scored };
  const calls = toolCalls.length === 0 ? {} : { tool_calls: toolCalls };
  return { message: { role: 'assistant', content, ...thought, ...calls }, ...scored };
}

/** The reason why an answer ended. */
export interface OllamaEnd {
  /** stop, length; or load and unload: the request asked only to load or to unload the model. */
  done_reason: string;
}

/** The end of an answer with its times in nanoseconds. */
export interface AnswerFigures extends OllamaEnd {
  total_duration: number;
  load_duration: number;
  prompt_eval_count: number;
  prompt_eval_duration: number;
  eval_count: number;
  eval_duration: number;
}

/** Times of the request, its start (after the queue), its first token and its last token: milliseconds of one clock. */
export interface OllamaTimes {
  askedMs: number;
  begunMs: number;
  firstTokenMs: number;
  endedMs: number;
}

const NS_PER_MS = 1_000_000;

export function figuresOf(
  reason: string,
  times: OllamaTimes,
  tokens: { prompt: number; answer: number },
): AnswerFigures {
  const { askedMs, begunMs, firstTokenMs, endedMs } = times;
  return {
    done_reason: reason,
    total_duration: nanoseconds(endedMs - askedMs),
    load_duration: 0,
    prompt_eval_count: tokens.prompt,
    prompt_eval_duration: nanoseconds(firstTokenMs - begunMs),
    eval_count: tokens.answer,
    eval_duration: nanoseconds(endedMs - firstTokenMs),
  };
}

/** Returns at least one, because clients divide by it. */
function nanoseconds(durationMs: number): number {
  return Math.max(1, Math.round(durationMs * NS_PER_MS));
}

/** Gathers the deltas of an answer into parts. A call is held until its arguments are complete. */
export class PartMaker {
  private open: { id: string; index: number; name: string; text: string } | null = null;

  /** Makes parts of deltas that came together. */
  of(deltas: readonly AnswerDelta[]): AnswerPart[] {
    const parts: AnswerPart[] = [];
    for (const delta of deltas) {
      if (delta.kind === 'toolArguments') {
        if (this.open !== null) this.open.text += delta.text;
        continue;
      }
      parts.push(...this.finish());
      if (delta.kind === 'toolCall') this.open = { id: delta.id, index: delta.index, name: delta.name, text: '' };
      else parts.push({ ...emptyPart(), [delta.kind === 'content' ? 'content' : 'thinking']: delta.text });
    }
    return parts;
  }

  /** Ends the parts, when no delta follows. A call whose arguments were cut off by the answer's end is dropped. */
  finish(): AnswerPart[] {
    const { open } = this;
    this.open = null;
    if (open === null) return [];
    const value = argumentsOf(open.text);
    if (value === null) return [];
    const { id, index, name } = open;
    return [{ ...emptyPart(), toolCalls: [{ id, function: { index, name, arguments: value } }] }];
  }
}

function argumentsOf(text: string): JsonText | null {
  const written = text === '' ? '{}' : text;
  return jsonProperties(written) === null ? null : new JsonText(written);
}

/** Joins several parts into one. */
export function joinedParts(parts: readonly AnswerPart[]): AnswerPart {
  const whole = emptyPart();
  for (const part of parts) {
    whole.content += part.content;
    whole.thinking += part.thinking;
    whole.toolCalls.push(...part.toolCalls);
    whole.logprobs.push(...part.logprobs);
  }
  return whole;
}
