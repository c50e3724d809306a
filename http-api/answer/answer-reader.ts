import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { Finished, GenerateReply, TokenReply } from '../../shared/wire/messages.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { AnswerParser, AnswerDelta } from '../conversation/chat-request.js';
import type { ScoredToken } from './logprob-entries.js';
import { TokenSpans, type TokenSpan } from './token-spans.js';

/** The parts that one reply adds to an answer. */
export interface AnswerStep {
  deltas: AnswerDelta[];
  /** Tokens of the content whose text is now complete; empty if no log-probabilities were asked for. */
  spans: TokenSpan<ScoredToken>[];
  /** Set in the answer's last step; null before. */
  end: AnswerEnd | null;
}

export interface AnswerEnd {
  finishReason: 'stop' | 'length' | 'tool_calls';
  finished: Finished;
}

export interface TokenCounts {
  prompt: number;
  /** Tokens of the prompt that need not run, because an earlier request had the same ones. Known at the answer's end. */
  cached: number;
  answer: number;
  /** Tokens of the answer that are reasoning. */
  reasoning: number;
}

export interface AnswerReaderOptions {
  tokenizer: Tokenizer | null;
  /** Makes the parser of an answer whose prompt ends with `promptEnd`. `answer`: its number among the answers to the prompt. */
  createParser: (promptEnd: string, answer: number) => AnswerParser;
  /** True: log-probabilities are sent. */
  logprobs: boolean;
  /** True: the text shows special tokens by their names. */
  showSpecialTokens: boolean;
}

/** The number of tokens at the prompt's end that a parser gets as text. */
const PROMPT_END_TOKENS = 64;

/** Reads the replies of one answer: splits the text into parts and says which token brought which part of the content. */
export class AnswerReader {
  readonly counts: TokenCounts = { prompt: 0, cached: 0, answer: 0, reasoning: 0 };
  private parser: AnswerParser | null = null;
  private readonly spans = new TokenSpans<ScoredToken>();
  /** Tokens since the last answer delta. */
  private unattributed = 0;

  /** `answer`: its number among the answers to the prompt. */
  constructor(
    private readonly options: AnswerReaderOptions,
    private readonly answer = 0,
  ) {}

  /** Returns null if the reply adds nothing to the answer. */
  take(reply: GenerateReply): AnswerStep | null {
    switch (reply.kind) {
      case 'started':
        this.counts.prompt = reply.started.promptTokenIds.length;
        this.parser = this.parserBehind(reply.started.promptTokenIds);
        return null;
      case 'prompt':
        return null;
      case 'token':
        return this.takeToken(reply.token);
      case 'finished':
        return this.takeEnd(reply.finished);
    }
  }

  private parserBehind(promptIds: readonly number[]): AnswerParser {
    const { createParser, tokenizer } = this.options;
    return createParser(promptEnd(promptIds, tokenizer), this.answer);
  }

  private takeToken(token: TokenReply): AnswerStep {
    this.counts.answer += 1;
    this.unattributed += 1;
    if (this.options.logprobs) this.spans.add(token, this.bytesOf(token.tokenId));
    const deltas = this.requireParser().push(token.text);
    return { deltas, spans: this.spansOf(deltas), end: null };
  }

  private takeEnd(finished: Finished): AnswerStep {
    this.counts.cached = finished.cachedTokens;
    const parser = this.requireParser();
    const deltas = parser.finish();
    const spans = [...this.spansOf(deltas), ...this.spans.finish()];
    const called = parser.lastCallWhole && finished.finishReason === 'stop';
    const finishReason = called ? 'tool_calls' : finished.finishReason === 'length' ? 'length' : 'stop';
    return { deltas, spans, end: { finishReason, finished } };
  }

  private spansOf(deltas: readonly AnswerDelta[]): TokenSpan<ScoredToken>[] {
    const [first] = deltas;
    if (first === undefined) return this.options.logprobs ? this.spans.push('') : [];
    if (first.kind === 'reasoning') this.counts.reasoning += this.unattributed;
    this.unattributed = 0;
    if (!this.options.logprobs) return [];
    return deltas.flatMap((delta) => (delta.kind === 'content' ? this.spans.push(delta.text) : this.spans.skip()));
  }

  private bytesOf(tokenId: number): Uint8Array {
    const { tokenizer, showSpecialTokens } = this.options;
    if (tokenizer === null || (tokenizer.isSpecial(tokenId) && !showSpecialTokens)) return new Uint8Array();
    return tokenizer.tokenBytes(tokenId);
  }

  private requireParser(): AnswerParser {
    assertInvariant(this.parser !== null, 'an answer begins with its prompt.');
    return this.parser;
  }
}

/** The last tokens of a prompt as text, with the names of special tokens. */
export function promptEnd(promptIds: readonly number[], tokenizer: Tokenizer | null): string {
  if (tokenizer === null) return '';
  return Buffer.concat(promptIds.slice(-PROMPT_END_TOKENS).map((id) => tokenizer.tokenBytes(id))).toString('utf8');
}
