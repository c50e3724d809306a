import type { GenerateReply } from '../../shared/wire/messages.js';
import { openaiUsage, type OpenaiHead, type Usage } from './chat-chunks.js';
import { CompletionReader, type CompletionReaderOptions, type CompletionStep } from './completion-reader.js';
import type { CompletionLogprobs } from '../answer/logprob-entries.js';

interface CompletionAnswersOptions extends Omit<CompletionReaderOptions, 'prompt'> {
  prompts: readonly CompletionReaderOptions['prompt'][];
  /** Number of answers to each prompt. Answers are numbered prompt by prompt. */
  count: number;
}

function readersOf({ prompts, count, ...options }: CompletionAnswersOptions): CompletionReader[] {
  return prompts.flatMap((prompt) => Array.from({ length: count }, () => new CompletionReader({ ...options, prompt })));
}

function usageOfReaders(readers: readonly CompletionReader[], count: number): Usage {
  return openaiUsage(
    readers.map((reader) => reader.counts),
    count,
  );
}

function bodyOf({ id, ...rest }: OpenaiHead, properties: object): object {
  return { id, object: 'text_completion', ...rest, ...properties };
}

/** Makes the chunks of streamed text completions. */
export class CompletionStream {
  private readonly readers: CompletionReader[];

  constructor(
    private readonly head: OpenaiHead,
    private readonly options: CompletionAnswersOptions,
  ) {
    this.readers = readersOf(options);
  }

  take(index: number, reply: GenerateReply): object[] {
    const step = this.readers[index]?.take(reply) ?? null;
    if (step === null || isEmpty(step)) return [];
    const { text, logprobs, finishReason } = step;
    return [bodyOf(this.head, { choices: [{ text, index, logprobs, finish_reason: finishReason }] })];
  }

  /** The last chunk, if the request asked for usage. */
  usage(): object {
    return bodyOf(this.head, { choices: [], usage: usageOfReaders(this.readers, this.options.count) });
  }
}

function isEmpty({ text, logprobs, finishReason }: CompletionStep): boolean {
  return text === '' && finishReason === null && (logprobs === null || logprobs.tokens.length === 0);
}

/** Makes the body of text completions that are not streamed. */
export class CompletionBody {
  private readonly readers: CompletionReader[];
  private readonly choices: {
    text: string;
    index: number;
    logprobs: CompletionLogprobs | null;
    finish_reason: string;
  }[];

  constructor(
    private readonly head: OpenaiHead,
    private readonly options: CompletionAnswersOptions,
  ) {
    this.readers = readersOf(options);
    this.choices = this.readers.map((_, index) => ({ text: '', index, logprobs: null, finish_reason: 'stop' }));
  }

  take(index: number, reply: GenerateReply): void {
    const step = this.readers[index]?.take(reply) ?? null;
    const choice = this.choices[index];
    if (step === null || choice === undefined) return;
    choice.text += step.text;
    if (step.logprobs !== null) choice.logprobs = joined(choice.logprobs, step.logprobs);
    if (step.finishReason !== null) choice.finish_reason = step.finishReason;
  }

  body(): object {
    return bodyOf(this.head, { choices: this.choices, usage: usageOfReaders(this.readers, this.options.count) });
  }
}

function joined(before: CompletionLogprobs | null, more: CompletionLogprobs): CompletionLogprobs {
  if (before === null) return more;
  before.tokens.push(...more.tokens);
  before.token_logprobs.push(...more.token_logprobs);
  before.top_logprobs.push(...more.top_logprobs);
  before.text_offset.push(...more.text_offset);
  return before;
}
