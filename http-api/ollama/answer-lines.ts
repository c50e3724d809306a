import { jsonMembers } from '../../shared/base/json/exact-json.js';
import { JsonText } from '../delivery/json-text.js';
import type { AnswerDelta } from '../conversation/chat-request.js';
import type { ChatLogprob } from '../answer/logprob-entries.js';

/** A call of a tool as Ollama tells it: whole, with its arguments as an object. */
export interface OllamaToolCall {
  id: string;
  function: { index: number; name: string; arguments: JsonText };
}

/** A part of an answer, or all of it. */
export interface AnswerPart {
  content: string;
  thinking: string;
  toolCalls: OllamaToolCall[];
  logprobs: ChatLogprob[];
}

export function emptyPart(): AnswerPart {
  return { content: '', thinking: '', toolCalls: [], logprobs: [] };
}

/** Which of Ollama's two endpoints answers. */
export type Endpoint = 'chat' | 'generate';

/** What every answer begins with. */
export interface OllamaHead {
  model: string;
  /** RFC 3339. */
  created_at: string;
}

/** A line of a stream that says a part of the answer. */
export function partLine(endpoint: Endpoint, head: OllamaHead, part: AnswerPart): object {
  return { ...head, ...partFields(endpoint, part), done: false };
}

/** The last line of a stream, or an answer that is not streamed, which then has all it says. */
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

/** Why an answer ended. */
export interface OllamaEnd {
  /** stop, length; load and unload: nothing was asked for but that the model is there, or that it goes. */
  done_reason: string;
}

/** And after how long; times are nanoseconds. */
export interface AnswerFigures extends OllamaEnd {
  total_duration: number;
  load_duration: number;
  prompt_eval_count: number;
  prompt_eval_duration: number;
  eval_count: number;
  eval_duration: number;
}

/** When an answer was asked for, begun (out of the queue), had its first token, and its last: milliseconds of one clock. */
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

/** At least one: clients divide by it. */
function nanoseconds(durationMs: number): number {
  return Math.max(1, Math.round(durationMs * NS_PER_MS));
}

/** Gathers the pieces of an answer into parts; a call is held until its arguments are whole. */
export class PartMaker {
  private open: { id: string; index: number; name: string; text: string } | null = null;

  /** Pieces that came together. */
  of(pieces: readonly AnswerDelta[]): AnswerPart[] {
    const parts: AnswerPart[] = [];
    for (const piece of pieces) {
      if (piece.kind === 'toolArguments') {
        if (this.open !== null) this.open.text += piece.text;
        continue;
      }
      parts.push(...this.finish());
      if (piece.kind === 'toolCall') this.open = { id: piece.id, index: piece.index, name: piece.name, text: '' };
      else parts.push({ ...emptyPart(), [piece.kind === 'content' ? 'content' : 'thinking']: piece.text });
    }
    return parts;
  }

  /** When no piece follows. A call whose arguments the end of the answer has cut off is none. */
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
  return jsonMembers(written) === null ? null : new JsonText(written);
}

/** Parts as one. */
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
