import { isJson } from '../../shared/base/json/is-json.js';
import { JsonText } from '../delivery/json-text.js';
import type { AnswerEnd, TokenCounts } from '../answer/answer-reader.js';
import type { AnswerDelta } from '../conversation/chat-request.js';

/** Placeholder for a signature: clients send reasoning back only with a signature. */
const SIGNATURE = 'unsigned';

export type AnswerBlock =
  | { type: 'text'; text: string }
  | { type: 'thinking'; thinking: string; signature: string }
  | { type: 'tool_use'; id: string; name: string; input: unknown };

export interface MessageUsage {
  input_tokens: number;
  output_tokens: number;
  cache_creation_input_tokens: number;
  cache_read_input_tokens: number;
}

export interface MessageEvent extends Record<string, unknown> {
  type: string;
}

/** The properties that begin every answer. */
export interface MessageHead {
  id: string;
  model: string;
  /** Left out where answers are exact. */
  arithmetic?: string;
  /** Wishes of the request that are not kept; left out where there are none, as in Anthropic's answers. */
  warnings?: readonly string[];
}

/** An answer of /v1/messages without content. */
export function emptyMessage({ id, ...head }: MessageHead, inputTokens: number): Record<string, unknown> {
  return {
    id,
    type: 'message',
    role: 'assistant',
    ...head,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: anthropicUsage({ prompt: inputTokens, cached: 0, answer: 0 }),
  };
}

/** Anthropic counts the prompt's tokens that were read from a cache apart from the others. */
export function anthropicUsage({ prompt, cached, answer }: Omit<TokenCounts, 'reasoning'>): MessageUsage {
  return {
    input_tokens: prompt - cached,
    output_tokens: answer,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
  };
}

/** The reason why an answer has ended, in Anthropic's terms. */
export function stopOf({ finishReason, finished }: AnswerEnd): { stop_reason: string; stop_sequence: string | null } {
  const { stopString } = finished;
  if (stopString !== '') return { stop_reason: 'stop_sequence', stop_sequence: stopString };
  const reasons = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' };
  return { stop_reason: reasons[finishReason], stop_sequence: null };
}

/** An event in the form of a stream. */
export function framed(event: MessageEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

/** Makes events from answer deltas: each block begins, fills and ends before the next one begins. */
export class BlockEvents {
  private index = -1;
  private open: { kind: 'text' | 'thinking' } | { kind: 'tool_use'; call: number } | null = null;

  of(deltas: readonly AnswerDelta[]): MessageEvent[] {
    return deltas.flatMap((delta) => this.ofDelta(delta));
  }

  /** Ends the open block; no answer delta follows. */
  finish(): MessageEvent[] {
    return this.end();
  }

  private ofDelta(delta: AnswerDelta): MessageEvent[] {
    switch (delta.kind) {
      case 'content':
        return [
          ...(this.open?.kind === 'text' ? [] : this.begin({ kind: 'text' }, { type: 'text', text: '' })),
          this.blockDelta({ type: 'text_delta', text: delta.text }),
        ];
      case 'reasoning':
        return [
          ...(this.open?.kind === 'thinking'
            ? []
            : this.begin({ kind: 'thinking' }, { type: 'thinking', thinking: '', signature: '' })),
          this.blockDelta({ type: 'thinking_delta', thinking: delta.text }),
        ];
      case 'toolCall': {
        const { id, name, index } = delta;
        return this.begin({ kind: 'tool_use', call: index }, { type: 'tool_use', id, name, input: {} });
      }
      case 'toolArguments':
        return [this.blockDelta({ type: 'input_json_delta', partial_json: delta.text })];
    }
  }

  private begin(open: NonNullable<BlockEvents['open']>, content_block: AnswerBlock): MessageEvent[] {
    const ended = this.end();
    this.open = open;
    this.index += 1;
    return [...ended, { type: 'content_block_start', index: this.index, content_block }];
  }

  private blockDelta(delta: object): MessageEvent {
    return { type: 'content_block_delta', index: this.index, delta };
  }

  private end(): MessageEvent[] {
    if (this.open === null) return [];
    const signed =
      this.open.kind === 'thinking' ? [this.blockDelta({ type: 'signature_delta', signature: SIGNATURE })] : [];
    this.open = null;
    return [...signed, { type: 'content_block_stop', index: this.index }];
  }
}

/** Builds whole blocks from answer deltas. */
export function answerBlocks(deltas: readonly AnswerDelta[]): AnswerBlock[] {
  const blocks: AnswerBlock[] = [];
  let input = '';
  for (const delta of deltas) {
    const last = blocks.at(-1);
    if (delta.kind === 'content') {
      if (last?.type === 'text') last.text += delta.text;
      else blocks.push({ type: 'text', text: delta.text });
    } else if (delta.kind === 'reasoning') {
      if (last?.type === 'thinking') last.thinking += delta.text;
      else blocks.push({ type: 'thinking', thinking: delta.text, signature: SIGNATURE });
    } else if (delta.kind === 'toolCall') {
      blocks.push({ type: 'tool_use', id: delta.id, name: delta.name, input: {} });
      input = '';
    } else if (last?.type === 'tool_use') {
      input += delta.text;
      last.input = input;
    }
  }
  return blocks.map((block) => (block.type === 'tool_use' ? { ...block, input: givenInput(block.input) } : block));
}

/** The arguments of a call as written. Arguments that the end of the answer cut off are no JSON; an empty object replaces them. */
function givenInput(text: unknown): unknown {
  return typeof text === 'string' && isJson(text) ? new JsonText(text) : {};
}
