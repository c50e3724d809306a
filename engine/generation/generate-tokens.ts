import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { OutputConstraint } from '../output-format/output-constraint.js';
import type { PromptLogprobs, TokenReply } from '../../shared/wire/messages.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { runInSlices } from '../../shared/base/runtime/slices.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { logprobsOf } from '../sampling/log-probabilities.js';
import { TokenSampler } from '../sampling/token-sampler.js';
import { AnswerText } from './answer-text.js';
import { PromptLogprobsRecord } from './prompt-logprobs.js';
import type { SequenceRunner } from './sequence-runner.js';

/** A request's options, checked (resolveGeneration). */
export interface GenerationOptions {
  /** 0: the prompt alone is run. */
  maxTokens: number;
  sampling: SamplingOptions;
  /** Of sampling.outputFormat; null: any text. */
  constraint: OutputConstraint | null;
  stop: readonly string[];
  ignoreEos: boolean;
  eosTokenIds: readonly number[];
  /** Most likely tokens to report with each token; 0: none. */
  logprobs: number;
  /** The prompt's tokens are reported, too. */
  promptLogprobs: boolean;
  /** Special tokens stand in the text by their names. */
  showSpecialTokens: boolean;
}

/** What comes while an answer is made. */
export type GenerationStep = { kind: 'prompt'; prompt: PromptLogprobs } | { kind: 'token'; token: TokenReply };

export interface GenerationOutcome {
  finishReason: 'stop' | 'length';
  /** The stop string that ended the answer; empty: something else did. */
  stopString: string;
  text: string;
  /** With the end-of-sequence token that ended the answer, whose text is not shown. */
  tokenIds: number[];
}

type AnswerEnd = Pick<GenerationOutcome, 'finishReason' | 'stopString'>;

/**
 * The token loop, one for the single-process engine and for main: the prompt's log-probabilities where they are wanted; then sample,
 * report, run the token, until an end-of-sequence token, a stop string (the text ends before it, the tokens with the one that completed
 * it), the end of the output format, or maxTokens. Log-probabilities are those of the raw logits, before penalties, format and
 * temperature. Throws CANCELLED when `signal` aborts, and what TokenSampler throws; the runner is ended in every case.
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
    for (const prompt of record?.pieces() ?? []) yield { kind: 'prompt', prompt };
    if (options.maxTokens === 0) return { finishReason: 'length', stopString: '', text: '', tokenIds: [] };
    const history = [...promptIds];
    const answer = new AnswerText(tokenizer, options);
    const sampler = samplerOf(options, promptIds.length);
    for (;;) {
      throwIfCancelled(signal);
      const tokenId = await runInSlices(sampler.sample(logits, history), runtime);
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

/** Logits of the last token; those of the others go into the record. */
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
 * Text that a token adds, and how it ends the answer (null: it does not). `isLast`: there is no room for another; `isClosed`: nor does the
 * output format allow one.
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
