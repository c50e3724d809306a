import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { OutputConstraint } from '../output-format/output-constraint.js';
import type { PromptLogprobs, TokenReply } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { runInSteps } from '../../shared/base/runtime/work-steps.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { logprobsOf } from '../sampling/log-probabilities.js';
import { TokenSampler } from '../sampling/token-sampler.js';
import { PromptLogprobsRecord } from './prompt-logprobs.js';
import type { SequenceRunner } from './sequence-runner.js';
import { StreamingDetokenizer } from './streaming-detokenizer.js';

/** Text that may be shown, and the stop string that followed it, after which no text may follow; null: no stop string came. */
interface ShownText {
  text: string;
  stop: string | null;
}

/**
 * Searches a text that comes in deltas for stop strings. Text that may be the beginning of a stop string is held back. The text is cut before
 * the first stop string.
 */
export class StopStrings {
  private held = '';

  constructor(private readonly stops: readonly string[]) {}

  push(delta: string): ShownText {
    const pending = this.held + delta;
    const found = this.stops
      .map((stop) => ({ stop, index: pending.indexOf(stop) }))
      .filter(({ index }) => index >= 0)
      .sort((left, right) => left.index - right.index)[0];
    if (found !== undefined) {
      this.held = '';
      return { text: pending.slice(0, found.index), stop: found.stop };
    }
    const shown = pending.length - this.startOfStop(pending);
    this.held = pending.slice(shown);
    return { text: pending.slice(0, shown), stop: null };
  }

  /** The text that was held back, when the answer ends without a stop string. */
  flush(): string {
    const rest = this.held;
    this.held = '';
    return rest;
  }

  /** Length of the longest end of `text` that is the beginning of a stop string. */
  private startOfStop(text: string): number {
    let longest = 0;
    for (const stop of this.stops) {
      for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
        if (text.endsWith(stop.slice(0, length))) longest = length;
      }
    }
    return longest;
  }
}

/** A request's options, checked (resolveGeneration). */
export interface GenerationOptions {
  /** 0: only the prompt runs. */
  maxTokens: number;
  sampling: SamplingOptions;
  /** The constraint of sampling.outputFormat; null: any text. */
  constraint: OutputConstraint | null;
  stop: readonly string[];
  ignoreEos: boolean;
  eosTokenIds: readonly number[];
  /** Number of most likely tokens to report with each token; 0: none. */
  logprobs: number;
  /** Report log-probabilities of the prompt's tokens, too. */
  promptLogprobs: boolean;
  /** Show special tokens in the text by their names. */
  showSpecialTokens: boolean;
}

/** One step of an answer: log-probabilities of the prompt, or a token. */
export type GenerationStep = { kind: 'prompt'; prompt: PromptLogprobs } | { kind: 'token'; token: TokenReply };

export interface GenerationOutcome {
  finishReason: 'stop' | 'length';
  /** The stop string that ended the answer; empty: the answer ended in another way. */
  stopString: string;
  text: string;
  /** All tokens, with the end-of-sequence token that ended the answer; the text does not show that token. */
  tokenIds: number[];
}

type AnswerEnd = Pick<GenerationOutcome, 'finishReason' | 'stopString'>;

/**
 * The token loop, shared by the single-process engine and main. It reports the prompt's log-probabilities if the options ask for them. Then it
 * samples, reports and runs a token, until an end-of-sequence token, a stop string (the text ends before it; the tokens include the one that
 * completed it), the end of the output format, or maxTokens. Log-probabilities are those of the raw logits, before penalties, format and
 * temperature. Throws CANCELLED when `signal` aborts, and the errors of TokenSampler; always ends the runner.
 */
export async function* generateTokens(
  runner: SequenceRunner,
  promptIds: readonly number[],
  options: GenerationOptions,
  tokenizer: Tokenizer | null,
  signal: AbortSignal,
  runtime: Pick<Runtime, 'nextTurn'>,
): AsyncGenerator<GenerationStep, GenerationOutcome> {
  try {
    throwIfCancelled(signal);
    const record = options.promptLogprobs ? new PromptLogprobsRecord(promptIds, options.logprobs) : null;
    let logits = await prefill(runner, promptIds, record, signal);
    for (const prompt of record?.messages() ?? []) yield { kind: 'prompt', prompt };
    if (options.maxTokens === 0) return { finishReason: 'length', stopString: '', text: '', tokenIds: [] };
    const history = [...promptIds];
    const answer = new AnswerText(tokenizer, options);
    const sampler = samplerOf(options, promptIds.length);
    for (;;) {
      throwIfCancelled(signal);
      const tokenId = await runInSteps(sampler.sample(logits, history), runtime);
      throwIfCancelled(signal);
      history.push(tokenId);
      const isLast = history.length - promptIds.length === options.maxTokens;
      const { text, end } = advance(answer, tokenId, options, { isLast, isClosed: () => sampler.isClosed(history) });
      yield { kind: 'token', token: { tokenId, text, ...logprobsOf(logits, tokenId, options.logprobs) } };
      if (end !== null) return { ...end, text: answer.text, tokenIds: history.slice(promptIds.length) };
      throwIfCancelled(signal);
      logits = await runner.decode(tokenId);
    }
  } catch (thrown) {
    runner.failed?.(toOdmoeError(thrown));
    throw thrown;
  } finally {
    await runner.end();
  }
}

function samplerOf({ sampling, constraint, maxTokens }: GenerationOptions, promptTokens: number): TokenSampler {
  return new TokenSampler({ sampling, constraint, promptTokens, maxPositions: promptTokens + maxTokens });
}

/** Runs the prompt and returns the logits of its last token; the record gets those of the other tokens. */
function prefill(
  runner: SequenceRunner,
  promptIds: readonly number[],
  record: PromptLogprobsRecord | null,
  signal: AbortSignal,
): Promise<Float32Array> {
  if (record === null) return runner.prefill(promptIds);
  return runner.prefill(promptIds, (position, logits) => {
    throwIfCancelled(signal);
    record.add(position, logits);
  });
}

/**
 * The text that a token adds, and the end of the answer (null: it continues). `isLast`: there is no room for another token; `isClosed`: true if
 * the output format allows no further token.
 */
function advance(
  answer: AnswerText,
  tokenId: number,
  options: GenerationOptions,
  room: { isLast: boolean; isClosed: () => boolean },
): { text: string; end: AnswerEnd | null } {
  if (!options.ignoreEos && options.eosTokenIds.includes(tokenId)) {
    return { text: answer.finish().text, end: { finishReason: 'stop', stopString: '' } };
  }
  const step = answer.push(tokenId);
  if (step.stop !== null) return { text: step.text, end: { finishReason: 'stop', stopString: step.stop } };
  const isClosed = room.isClosed();
  if (!room.isLast && !isClosed) return { text: step.text, end: null };
  const last = answer.finish();
  const finishReason = last.stop === null && !isClosed ? 'length' : 'stop';
  return { text: step.text + last.text, end: { finishReason, stopString: last.stop ?? '' } };
}

function throwIfCancelled(signal: AbortSignal): void {
  if (signal.aborted) throw new OdmoeError('CANCELLED', 'the generation was cancelled before its answer was complete');
}

interface AnswerTextOptions {
  stop: readonly string[];
  /** Show special tokens in the text by their names. */
  showSpecialTokens: boolean;
}

/** The growing text of an answer: detokenized, and cut before a stop string. Empty without a tokenizer. */
export class AnswerText {
  private readonly detokenizer: StreamingDetokenizer | null;
  private readonly stops: StopStrings;
  private shown = '';

  constructor(tokenizer: Tokenizer | null, { stop, showSpecialTokens }: AnswerTextOptions) {
    this.detokenizer = tokenizer === null ? null : new StreamingDetokenizer(tokenizer, showSpecialTokens);
    this.stops = new StopStrings(stop);
  }

  /** All text shown so far. */
  get text(): string {
    return this.shown;
  }

  /** Text that is certain after this token. */
  push(tokenId: number): ShownText {
    return this.show(this.stops.push(this.detokenizer?.push(tokenId) ?? ''));
  }

  /** The remaining text, when no token follows. */
  finish(): ShownText {
    const last = this.stops.push(this.detokenizer?.flush() ?? '');
    return this.show(last.stop !== null ? last : { text: last.text + this.stops.flush(), stop: null });
  }

  private show(step: ShownText): ShownText {
    this.shown += step.text;
    return step;
  }
}
