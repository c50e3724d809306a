import type { GenerateReply } from '../../shared/wire/messages.js';
import { AnswerReader, type AnswerReaderOptions, type AnswerStep } from '../answer/answer-reader.js';
import {
  chatBody,
  ChatChoice,
  chatChunk,
  deltasOf,
  usageChunk,
  openaiUsage,
  type OpenaiHead,
  type Usage,
} from './chat-chunks.js';
import { chatLogprob, type ChatLogprob } from '../answer/logprob-entries.js';

export interface ChatAnswersOptions extends AnswerReaderOptions {
  /** Number of answers to the one prompt. */
  count: number;
  /** Number of alternatives that are shown with each log-probability. */
  topLogprobs: number;
  /** Wishes of the request that are not kept. */
  warnings: readonly string[];
}

/** The answers to one chat. Their replies may come in any order. */
class ChatAnswers {
  private readonly readers: AnswerReader[];

  constructor(private readonly options: ChatAnswersOptions) {
    this.readers = Array.from({ length: options.count }, (_, index) => new AnswerReader(options, index));
  }

  take(index: number, reply: GenerateReply): AnswerStep | null {
    return this.readers[index]?.take(reply) ?? null;
  }

  entriesOf({ spans }: AnswerStep): ChatLogprob[] {
    const { tokenizer, topLogprobs } = this.options;
    return tokenizer === null ? [] : spans.map((span) => chatLogprob(span, topLogprobs, tokenizer));
  }

  usage(): Usage {
    const counts = this.readers.map((reader) => reader.counts);
    return openaiUsage(counts, counts.length);
  }
}

/** Makes the chunks of a streamed chat. */
export class ChatStream {
  private readonly answers: ChatAnswers;
  private readonly begun = new Set<number>();
  /** Log-probabilities whose text comes in a later chunk, by answer. */
  private readonly held = new Map<number, ChatLogprob[]>();

  constructor(
    private readonly head: OpenaiHead,
    private readonly options: ChatAnswersOptions,
  ) {
    this.answers = new ChatAnswers(options);
  }

  take(index: number, reply: GenerateReply): object[] {
    const step = this.answers.take(index, reply);
    if (step === null) return [];
    const chunks = this.begun.has(index) ? [] : [this.firstChunk(index)];
    this.begun.add(index);
    let entries = [...(this.held.get(index) ?? []), ...this.answers.entriesOf(step)];
    for (const delta of deltasOf(step.deltas)) {
      const carried = delta.content === undefined ? [] : entries;
      if (delta.content !== undefined) entries = [];
      chunks.push(chatChunk(this.head, index, delta, null, carried));
    }
    this.held.set(index, step.end === null ? entries : []);
    if (step.end !== null) chunks.push(chatChunk(this.head, index, {}, step.end.finishReason, entries));
    return chunks;
  }

  /** The stream's first chunk has the warnings. */
  private firstChunk(index: number): object {
    const head = this.begun.size === 0 ? withWarnings(this.head, this.options.warnings) : this.head;
    return chatChunk(head, index, { role: 'assistant', content: '' }, null, null);
  }

  /** The last chunk, if the request asked for usage. */
  usage(): object {
    return usageChunk(this.head, this.answers.usage());
  }
}

/** Makes the body of a chat that is not streamed. */
export class ChatBody {
  private readonly answers: ChatAnswers;
  private readonly choices: ChatChoice[];

  constructor(
    private readonly head: OpenaiHead,
    private readonly options: ChatAnswersOptions,
  ) {
    this.answers = new ChatAnswers(options);
    this.choices = Array.from({ length: options.count }, () => new ChatChoice());
  }

  take(index: number, reply: GenerateReply): void {
    const step = this.answers.take(index, reply);
    if (step === null) return;
    this.choices[index]?.add(step.deltas, this.answers.entriesOf(step), step.end?.finishReason ?? null);
  }

  body(): object {
    const choices = this.choices.map((choice, index) => choice.choice(index, this.options.logprobs));
    return chatBody(withWarnings(this.head, this.options.warnings), choices, this.answers.usage());
  }
}

/** The property is left out where there are no warnings, as in OpenAI's answers. */
function withWarnings(head: OpenaiHead, warnings: readonly string[]): OpenaiHead {
  return warnings.length > 0 ? { ...head, warnings } : head;
}
