import type { GenerateReply, PromptToken } from '../../shared/wire/messages.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { TokenCounts } from '../answer/answer-reader.js';
import type { CompletionPrompt } from './completion-fields.js';
import { CompletionLogprobList, type CompletionLogprobs, type ScoredToken } from '../answer/logprob-entries.js';
import { TokenSpans, type TokenSpan } from '../answer/token-spans.js';

export interface CompletionReaderOptions {
  tokenizer: Tokenizer | null;
  prompt: CompletionPrompt;
  /** True: the answer begins with the prompt's text. */
  echo: boolean;
  /** Number of alternatives that are shown with each token; null: no log-probabilities were asked for. */
  logprobs: number | null;
}

/** The part that one reply adds to a completion. */
export interface CompletionStep {
  text: string;
  logprobs: CompletionLogprobs | null;
  finishReason: 'stop' | 'length' | null;
}

/** Reads the replies of one text completion. */
export class CompletionReader {
  readonly counts: TokenCounts = { prompt: 0, cached: 0, answer: 0, reasoning: 0 };
  private promptIds: readonly number[] = [];
  private readonly promptScores: PromptToken[] = [];
  private echoed: boolean;
  private readonly spans = new TokenSpans<ScoredToken>();
  private readonly list: CompletionLogprobList | null;

  constructor(private readonly options: CompletionReaderOptions) {
    const { tokenizer, logprobs, echo } = options;
    this.echoed = !echo;
    this.list = logprobs === null || tokenizer === null ? null : new CompletionLogprobList(logprobs, tokenizer);
  }

  /** Returns null if the reply adds nothing by itself. */
  take(reply: GenerateReply): CompletionStep | null {
    switch (reply.kind) {
      case 'started':
        this.promptIds = reply.started.promptTokenIds;
        this.counts.prompt = this.promptIds.length;
        return null;
      case 'prompt':
        this.promptScores.push(...reply.prompt.tokens);
        return null;
      case 'token': {
        const { token } = reply;
        this.counts.answer += 1;
        this.spans.add(token, this.bytesOf(token.tokenId, false));
        return this.step(token.text, this.spans.push(token.text), null);
      }
      case 'finished':
        this.counts.cached = reply.finished.cachedTokens;
        return this.step('', this.spans.finish(), reply.finished.finishReason === 'length' ? 'length' : 'stop');
    }
  }

  private step(
    text: string,
    spans: readonly TokenSpan<ScoredToken>[],
    finishReason: CompletionStep['finishReason'],
  ): CompletionStep {
    const echo = this.echoed ? { text: '', spans: [] } : this.echo();
    this.echoed = true;
    const logprobs = this.list?.entriesOf([...echo.spans, ...spans]) ?? null;
    return { text: echo.text + text, logprobs, finishReason };
  }

  /** The prompt as the client sent it, or the text of its token ids. */
  private echo(): { text: string; spans: TokenSpan<ScoredToken>[] } {
    const { tokenizer, prompt } = this.options;
    const text = prompt.text ?? tokenizer?.decode(this.promptIds) ?? '';
    const spans = new TokenSpans<ScoredToken>();
    this.promptIds.forEach((tokenId, index) => {
      const score = this.promptScores[index];
      const logprob = index === 0 ? null : (score?.logprob ?? null);
      spans.add({ tokenId, logprob, top: score?.top ?? [] }, this.bytesOf(tokenId, prompt.text !== null));
    });
    return { text, spans: [...spans.push(text), ...spans.finish()] };
  }

  private bytesOf(tokenId: number, showSpecial: boolean): Uint8Array {
    const { tokenizer } = this.options;
    if (tokenizer === null || (tokenizer.isSpecial(tokenId) && !showSpecial)) return new Uint8Array();
    return tokenizer.tokenBytes(tokenId);
  }
}
