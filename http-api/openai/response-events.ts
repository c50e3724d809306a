import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateReply } from '../../shared/wire/messages.js';
import type { AnswerDelta } from '../conversation/chat-request.js';
import { clientCode } from '../errors/error-answer.js';
import { AnswerReader, type AnswerReaderOptions } from '../answer/answer-reader.js';
import { chatLogprob, type ChatLogprob } from '../answer/logprob-entries.js';

/** An event of a streamed answer. */
export interface ResponseEvent {
  type: string;
  sequence_number: number;
  [property: string]: unknown;
}

export interface ResponseOptions extends AnswerReaderOptions {
  topLogprobs: number;
}

/** Makes the events of an answer, and the answer as a whole. Both always agree. */
export class ResponseAnswer {
  private readonly reader: AnswerReader;
  private readonly output: OutputItem[] = [];
  private open: { item: OutputItem; index: number; part: OutputText | ReasoningText | null } | null = null;
  private sequence = 0;
  private hasBegun = false;
  private status: 'in_progress' | 'completed' | 'incomplete' | 'failed' = 'in_progress';
  private error: object | null = null;
  private held: ChatLogprob[] = [];

  /** `properties`: properties of the answer that come from its request; `id`: unique. */
  constructor(
    private readonly id: string,
    private readonly properties: object,
    private readonly options: ResponseOptions,
  ) {
    this.reader = new AnswerReader(options);
  }

  private begin(): ResponseEvent[] {
    if (this.hasBegun) return [];
    this.hasBegun = true;
    return [
      this.event('response.created', { response: this.response() }),
      this.event('response.in_progress', { response: this.response() }),
    ];
  }

  take(reply: GenerateReply): ResponseEvent[] {
    const step = this.reader.take(reply);
    if (step === null) return [];
    const { tokenizer, topLogprobs } = this.options;
    if (tokenizer !== null) this.held.push(...step.spans.map((span) => chatLogprob(span, topLogprobs, tokenizer)));
    const events = [...this.begin(), ...step.deltas.flatMap((delta) => this.takeDelta(delta))];
    return step.end === null ? events : [...events, ...this.finish(step.end.finishReason === 'length')];
  }

  /** The last events of an answer that failed. */
  fail({ code, message }: OdmoeError): ResponseEvent[] {
    const begun = this.begin();
    this.status = 'failed';
    this.error = { code: clientCode(code), message };
    return [...begun, this.event('response.failed', { response: this.response() })];
  }

  /** The answer as it is at this moment. */
  response(): object {
    const { prompt, cached, answer, reasoning } = this.reader.counts;
    const usage = {
      input_tokens: prompt,
      input_tokens_details: { cached_tokens: cached },
      output_tokens: answer,
      output_tokens_details: { reasoning_tokens: reasoning },
      total_tokens: prompt + answer,
    };
    return {
      id: `resp_${this.id}`,
      object: 'response',
      status: this.status,
      error: this.error,
      incomplete_details: this.status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      output: structuredClone(this.output),
      usage: this.status === 'in_progress' ? null : usage,
      ...this.properties,
    };
  }

  private takeDelta(delta: AnswerDelta): ResponseEvent[] {
    switch (delta.kind) {
      case 'content':
        return [...this.openItem('message'), ...this.addText(delta.text)];
      case 'reasoning':
        return [...this.openItem('reasoning'), ...this.addText(delta.text)];
      case 'toolCall':
        return [...this.close('completed'), ...this.begun(functionCallItem(this.itemId(), delta.id, delta.name))];
      case 'toolArguments':
        return this.addArguments(delta.text);
    }
  }

  private openItem(type: 'message' | 'reasoning'): ResponseEvent[] {
    if (this.open?.item.type === type) return [];
    const closed = this.close('completed');
    return [...closed, ...this.begun(type === 'message' ? messageItem(this.itemId()) : reasoningItem(this.itemId()))];
  }

  private begun(item: OutputItem): ResponseEvent[] {
    const index = this.output.push(item) - 1;
    this.open = { item, index, part: null };
    const added = this.event('response.output_item.added', { output_index: index, item: structuredClone(item) });
    if (item.type === 'function_call') return [added];
    const part = this.addPart(item);
    this.open.part = part;
    return [added, this.event('response.content_part.added', { ...this.place(), part: { ...part } })];
  }

  private addPart(item: Exclude<OutputItem, { type: 'function_call' }>): OutputText | ReasoningText {
    if (item.type === 'message') {
      const part: OutputText = { type: 'output_text', text: '', annotations: [], logprobs: [] };
      item.content.push(part);
      return part;
    }
    const part: ReasoningText = { type: 'reasoning_text', text: '' };
    item.content.push(part);
    return part;
  }

  private addText(text: string): ResponseEvent[] {
    const part = this.open?.part ?? null;
    if (part === null) return [];
    part.text += text;
    if (part.type === 'reasoning_text')
      return [this.event('response.reasoning_text.delta', { ...this.place(), delta: text })];
    const logprobs = this.takeLogprobs(part);
    return [this.event('response.output_text.delta', { ...this.place(), delta: text, logprobs })];
  }

  private addArguments(text: string): ResponseEvent[] {
    if (this.open?.item.type !== 'function_call') return [];
    this.open.item.arguments += text;
    const { item, index } = this.open;
    return [
      this.event('response.function_call_arguments.delta', { item_id: item.id, output_index: index, delta: text }),
    ];
  }

  private takeLogprobs(part: OutputText): ChatLogprob[] {
    const logprobs = this.held;
    this.held = [];
    part.logprobs.push(...logprobs);
    return logprobs;
  }

  /** Ends the open item. */
  private close(status: 'completed' | 'incomplete'): ResponseEvent[] {
    if (this.open === null) return [];
    const { item, index, part } = this.open;
    const events: ResponseEvent[] = [];
    if (item.type === 'function_call') {
      const properties = { item_id: item.id, output_index: index, name: item.name, arguments: item.arguments };
      events.push(this.event('response.function_call_arguments.done', properties));
    } else if (part?.type === 'output_text') {
      this.takeLogprobs(part);
      const { text, logprobs } = part;
      events.push(this.event('response.output_text.done', { ...this.place(), text, logprobs: [...logprobs] }));
    } else if (part !== null) {
      events.push(this.event('response.reasoning_text.done', { ...this.place(), text: part.text }));
    }
    if (part !== null)
      events.push(this.event('response.content_part.done', { ...this.place(), part: structuredClone(part) }));
    item.status = status;
    events.push(this.event('response.output_item.done', { output_index: index, item: structuredClone(item) }));
    this.open = null;
    return events;
  }

  private finish(cut: boolean): ResponseEvent[] {
    // An answer without any output is an empty message.
    const events = this.output.length === 0 ? this.openItem('message') : [];
    this.status = cut ? 'incomplete' : 'completed';
    events.push(...this.close(this.status));
    return [...events, this.event(`response.${this.status}`, { response: this.response() })];
  }

  private place(): object {
    return { item_id: this.open?.item.id ?? '', output_index: this.open?.index ?? 0, content_index: 0 };
  }

  private itemId(): string {
    return `${this.id}_${this.output.length}`;
  }

  private event(type: string, properties: object): ResponseEvent {
    return { type, sequence_number: this.sequence++, ...properties };
  }
}

type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** A part of an answer, as `output` lists it. */
type OutputItem =
  | { type: 'reasoning'; id: string; status: ItemStatus; summary: never[]; content: ReasoningText[] }
  | { type: 'message'; id: string; status: ItemStatus; role: 'assistant'; content: OutputText[] }
  | { type: 'function_call'; id: string; status: ItemStatus; call_id: string; name: string; arguments: string };

interface ReasoningText {
  type: 'reasoning_text';
  text: string;
}

interface OutputText {
  type: 'output_text';
  text: string;
  annotations: never[];
  logprobs: ChatLogprob[];
}

function messageItem(id: string): Extract<OutputItem, { type: 'message' }> {
  return { type: 'message', id: `msg_${id}`, status: 'in_progress', role: 'assistant', content: [] };
}

function reasoningItem(id: string): Extract<OutputItem, { type: 'reasoning' }> {
  return { type: 'reasoning', id: `rs_${id}`, status: 'in_progress', summary: [], content: [] };
}

function functionCallItem(id: string, callId: string, name: string): Extract<OutputItem, { type: 'function_call' }> {
  return { type: 'function_call', id: `fc_${id}`, status: 'in_progress', call_id: callId, name, arguments: '' };
}
