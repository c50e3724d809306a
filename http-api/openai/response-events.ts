import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateReply } from '../../shared/wire/messages.js';
import type { AnswerDelta } from '../conversation/chat-request.js';
import { clientCode } from '../errors/error-answer.js';
import { AnswerReader, type AnswerReaderOptions } from '../answer/answer-reader.js';
import { chatLogprob, type ChatLogprob } from '../answer/logprob-entries.js';
import { openCall, type CallEvent, type CallItem, type ItemStatus, type ResponseCall } from './response-calls.js';
import type { CallForm } from './response-tools.js';

/** An event of a streamed answer. */
export interface ResponseEvent {
  type: string;
  sequence_number: number;
  [property: string]: unknown;
}

export interface ResponseOptions extends AnswerReaderOptions {
  topLogprobs: number;
  /** The forms of calls by the model's names of the tools. */
  forms: ReadonlyMap<string, CallForm>;
}

/** An item that is not whole yet. */
interface OpenItem {
  item: OutputItem;
  index: number;
  part: OutputText | ReasoningText | null;
  call: ResponseCall | null;
}

/** Makes the events of an answer, and the answer as a whole. Both always agree. */
export class ResponseAnswer {
  private readonly reader: AnswerReader;
  private readonly output: OutputItem[] = [];
  private open: OpenItem | null = null;
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
        return [...this.close('completed'), ...this.openCall(delta.id, delta.name)];
      case 'toolArguments':
        return this.callEvents(this.open?.call?.take(delta.text) ?? []);
    }
  }

  private openItem(type: 'message' | 'reasoning'): ResponseEvent[] {
    if (this.open?.item.type === type) return [];
    const closed = this.close('completed');
    const item = type === 'message' ? messageItem(this.itemId()) : reasoningItem(this.itemId());
    const open = this.begun(item, null);
    const added = this.addedEvent(open);
    const part = this.addPart(item);
    open.part = part;
    return [...closed, added, this.event('response.content_part.added', { ...this.place(), part: { ...part } })];
  }

  private openCall(callId: string, name: string): ResponseEvent[] {
    const call = openCall(this.itemId(), callId, name, this.options.forms.get(name));
    return [this.addedEvent(this.begun(call.item, call))];
  }

  private begun(item: OutputItem, call: ResponseCall | null): OpenItem {
    this.open = { item, index: this.output.push(item) - 1, part: null, call };
    return this.open;
  }

  private addedEvent({ index, item }: OpenItem): ResponseEvent {
    return this.event('response.output_item.added', { output_index: index, item: structuredClone(item) });
  }

  private addPart(item: MessageItem | ReasoningItem): OutputText | ReasoningText {
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

  private callEvents(events: readonly CallEvent[]): ResponseEvent[] {
    const { item, index } = this.open ?? { item: { id: '' }, index: 0 };
    return events.map(([type, properties]) =>
      this.event(type, { item_id: item.id, output_index: index, ...properties }),
    );
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
    const { item, index, part, call } = this.open;
    const events: ResponseEvent[] = this.callEvents(call?.end() ?? []);
    if (part?.type === 'output_text') {
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

interface ReasoningItem {
  type: 'reasoning';
  id: string;
  status: ItemStatus;
  summary: never[];
  content: ReasoningText[];
}

interface MessageItem {
  type: 'message';
  id: string;
  status: ItemStatus;
  role: 'assistant';
  content: OutputText[];
}

/** A part of an answer, as `output` lists it. */
type OutputItem = ReasoningItem | MessageItem | CallItem;

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

function messageItem(id: string): MessageItem {
  return { type: 'message', id: `msg_${id}`, status: 'in_progress', role: 'assistant', content: [] };
}

function reasoningItem(id: string): ReasoningItem {
  return { type: 'reasoning', id: `rs_${id}`, status: 'in_progress', summary: [], content: [] };
}
