import type { GenerateReply } from '../../shared/wire/messages.js';
import { AnswerReader, type AnswerReaderOptions } from '../answer/answer-reader.js';
import type { AnswerDelta } from '../conversation/chat-request.js';
import {
  answerBlocks,
  BlockEvents,
  emptyMessage,
  framed,
  stopOf,
  anthropicUsage,
  type MessageEvent,
  type MessageHead,
} from './message-events.js';

/** Makes the events of a streamed answer. */
export class MessageStream {
  private readonly reader: AnswerReader;
  private readonly blocks = new BlockEvents();

  constructor(
    private readonly head: MessageHead,
    options: AnswerReaderOptions,
  ) {
    this.reader = new AnswerReader(options);
  }

  /** The events that the reply adds, framed; empty: none. */
  take(reply: GenerateReply): string {
    return this.eventsOf(reply).map(framed).join('');
  }

  private eventsOf(reply: GenerateReply): MessageEvent[] {
    const step = this.reader.take(reply);
    const { prompt } = this.reader.counts;
    if (reply.kind === 'started') {
      return [{ type: 'message_start', message: emptyMessage(this.head, prompt) }];
    }
    if (step === null) return [];
    const events = this.blocks.of(step.deltas);
    if (step.end === null) return events;
    const delta = stopOf(step.end);
    return [
      ...events,
      ...this.blocks.finish(),
      { type: 'message_delta', delta, usage: anthropicUsage(this.reader.counts) },
      { type: 'message_stop' },
    ];
  }
}

/** Makes the body of an answer that is not streamed. */
export class MessageBody {
  private readonly reader: AnswerReader;
  private readonly deltas: AnswerDelta[] = [];
  private stop: ReturnType<typeof stopOf> | null = null;

  constructor(
    private readonly head: MessageHead,
    options: AnswerReaderOptions,
  ) {
    this.reader = new AnswerReader(options);
  }

  take(reply: GenerateReply): void {
    const step = this.reader.take(reply);
    if (step === null) return;
    this.deltas.push(...step.deltas);
    if (step.end !== null) this.stop = stopOf(step.end);
  }

  body(): object {
    const { prompt } = this.reader.counts;
    return {
      ...emptyMessage(this.head, prompt),
      content: answerBlocks(this.deltas),
      ...this.stop,
      usage: anthropicUsage(this.reader.counts),
    };
  }
}
