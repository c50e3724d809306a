import type { GenerateReply } from '../../shared/wire/messages.js';
import { AnswerReader, type AnswerReaderOptions, type AnswerStep } from '../answer/answer-reader.js';
import { chatLogprob, type ChatLogprob } from '../answer/logprob-entries.js';
import type { HttpApiContext } from '../http-api-context.js';
import {
  type AnswerPart,
  type OllamaTimes,
  emptyPart,
  type Endpoint,
  figuresOf,
  joinedParts,
  lastLine,
  PartMaker,
  partLine,
} from './answer-lines.js';
import { ollamaHead } from './ollama-dialect.js';

export interface AnswerStreamOptions extends AnswerReaderOptions {
  endpoint: Endpoint;
  /** Number of alternatives that are shown with each log-probability. */
  topLogprobs: number;
}

/** Makes lines from an answer's replies. */
export class AnswerStream {
  private readonly reader: AnswerReader;
  private readonly parts = new PartMaker();
  private readonly times: OllamaTimes;
  /** Log-probabilities whose text comes in a later line. */
  private held: ChatLogprob[] = [];

  constructor(
    private readonly options: AnswerStreamOptions,
    private readonly context: Pick<HttpApiContext, 'model' | 'runtime'>,
  ) {
    this.reader = new AnswerReader(options);
    const nowMs = context.runtime.nowMs();
    this.times = { askedMs: nowMs, begunMs: nowMs, firstTokenMs: nowMs, endedMs: nowMs };
  }

  /** The lines of a stream for this reply. */
  lines(reply: GenerateReply): object[] {
    const { parts, reason } = this.take(reply);
    const { endpoint } = this.options;
    const head = ollamaHead(this.context);
    const lines = parts.map((part) => partLine(endpoint, head, part));
    return reason === null ? lines : [...lines, this.last(emptyPart(), reason)];
  }

  /** The whole answer if this was its last reply, otherwise null; `before`: the parts so far, to which the reply's parts are added. */
  whole(reply: GenerateReply, before: AnswerPart[]): object | null {
    const { parts, reason } = this.take(reply);
    before.push(...parts);
    return reason === null ? null : this.last(joinedParts(before), reason);
  }

  private take(reply: GenerateReply): { parts: AnswerPart[]; reason: 'stop' | 'length' | null } {
    const step = this.reader.take(reply);
    this.keepTime(reply);
    if (step === null) return { parts: [], reason: null };
    const made = this.parts.of(step.deltas);
    if (step.end !== null) made.push(...this.parts.finish());
    const parts = this.scored(made, step);
    return { parts, reason: step.end === null ? null : step.end.finishReason === 'length' ? 'length' : 'stop' };
  }

  private keepTime(reply: GenerateReply): void {
    const nowMs = this.context.runtime.nowMs();
    if (reply.kind === 'started') this.times.begunMs = nowMs;
    if (reply.kind === 'token' && this.reader.counts.answer === 1) this.times.firstTokenMs = nowMs;
    this.times.endedMs = nowMs;
  }

  /** Adds to the parts the log-probabilities of their tokens. Log-probabilities that are left at the end get a part of their own. */
  private scored(parts: AnswerPart[], { spans, end }: AnswerStep): AnswerPart[] {
    const { topLogprobs } = this.options;
    const { tokenizer } = this.options;
    if (tokenizer === null || !this.options.logprobs) return parts;
    this.held.push(...spans.map((span) => chatLogprob(span, topLogprobs, tokenizer)));
    const said = parts.find(({ content }) => content !== '');
    const carrier = said ?? (end !== null && this.held.length > 0 ? emptyPart() : null);
    if (carrier === null) return parts;
    carrier.logprobs.push(...this.held);
    this.held = [];
    return said === undefined ? [...parts, carrier] : parts;
  }

  private last(part: AnswerPart, reason: string): object {
    const { prompt, answer } = this.reader.counts;
    const figures = figuresOf(reason, this.times, { prompt, answer });
    return lastLine(this.options.endpoint, ollamaHead(this.context), part, figures);
  }
}
