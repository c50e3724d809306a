import { StreamingDetokenizer } from './streaming-detokenizer.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { type ShownText, StopStrings } from './stop-strings.js';

export interface AnswerTextOptions {
  stop: readonly string[];
  /** Special tokens stand in the text by their names. */
  showSpecialTokens: boolean;
}

/** The text of an answer as its tokens come: detokenized, and cut before a stop string. Empty without a tokenizer. */
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

  /** The rest, when no token follows. */
  finish(): ShownText {
    const last = this.stops.push(this.detokenizer?.flush() ?? '');
    return this.show(last.stop !== null ? last : { text: last.text + this.stops.flush(), stop: null });
  }

  private show(step: ShownText): ShownText {
    this.shown += step.text;
    return step;
  }
}
