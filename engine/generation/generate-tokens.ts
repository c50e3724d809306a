import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import type { TokenReply } from '../../shared/rpc/messages.js';
import type { SamplingOptions } from '../../shared/sampling/sampling-options.js';
import type { Tokenizer } from '../../shared/tokenizer/tokenizer.js';
import { logprobsOf } from '../sampling/log-probabilities.js';
import { sampleToken } from '../sampling/sample-token.js';
import { AnswerText } from './answer-text.js';
import type { SequenceRunner } from './sequence-runner.js';

/** A request's options, checked (resolveGeneration). */
export interface GenerationOptions {
  /** At least 1. */
  maxTokens: number;
  sampling: SamplingOptions;
  stop: readonly string[];
  ignoreEos: boolean;
  eosTokenIds: readonly number[];
  /** Most likely tokens to report with each token; 0: none. */
  logprobs: number;
}

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
 * The token loop, one for the single-process engine and for main: sample, report, run the token, until an end-of-sequence token,
 * a stop string (the text ends before it, the tokens with the one that completed it) or maxTokens. Log-probabilities are those
 * of the raw logits, before penalty and temperature. Throws CANCELLED when `signal` aborts; the runner is ended in every case.
 */
export async function* generateTokens(
  runner: SequenceRunner,
  promptIds: readonly number[],
  options: GenerationOptions,
  tokenizer: Tokenizer | null,
  signal: AbortSignal,
): AsyncGenerator<TokenReply, GenerationOutcome> {
  try {
    const history = [...promptIds];
    const answer = new AnswerText(tokenizer, options.stop);
    throwIfCancelled(signal);
    let logits = await runner.prefill(promptIds);
    for (;;) {
      throwIfCancelled(signal);
      const tokenId = sampleToken(logits, history, history.length, options.sampling);
      history.push(tokenId);
      const { text, end } = advance(answer, tokenId, history.length - promptIds.length, options);
      yield { tokenId, text, ...logprobsOf(logits, tokenId, options.logprobs) };
      if (end !== null) return { ...end, text: answer.text, tokenIds: history.slice(promptIds.length) };
      throwIfCancelled(signal);
      logits = await runner.decode(tokenId);
    }
  } finally {
    await runner.end();
  }
}

/** Text that a token adds, and how it ends the answer (null: it does not). `count`: tokens so far, this one included. */
function advance(
  answer: AnswerText,
  tokenId: number,
  count: number,
  options: GenerationOptions,
): { text: string; end: AnswerEnd | null } {
  if (!options.ignoreEos && options.eosTokenIds.includes(tokenId)) {
    return { text: answer.finish().text, end: { finishReason: 'stop', stopString: '' } };
  }
  const step = answer.push(tokenId);
  if (step.stop !== null) return { text: step.text, end: { finishReason: 'stop', stopString: step.stop } };
  if (count < options.maxTokens) return { text: step.text, end: null };
  const last = answer.finish();
  const finishReason = last.stop === null ? 'length' : 'stop';
  return { text: step.text + last.text, end: { finishReason, stopString: last.stop ?? '' } };
}

function throwIfCancelled(signal: AbortSignal): void {
  if (signal.aborted) throw new OdmoeError('CANCELLED', 'the generation was cancelled before its answer was complete');
}
