import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

/** What a decoder gives for a character whose bytes have not all come (UTF-8 replacement character). */
const REPLACEMENT = '\uFFFD';
/** Ids decoded again with each new one; a decoder may treat the first ids of a text differently, so it is never empty. */
const CONTEXT_TOKENS = 4;
const WINDOW_LIMIT_TOKENS = 24;

/**
 * Text of an answer as its tokens come. Only certain text is given: a character of several tokens is held back until it is
 * whole. All texts given, with flush's, equal tokenizer.decode of all ids, unless special tokens are shown. Cost per token does not grow with the answer.
 */
export class StreamingDetokenizer {
  private window: number[] = [];
  /** Length of the window's decoded text that was given already. */
  private given = 0;

  /** `showSpecial`: special tokens stand in the text by their names. Bytes before one that are no whole character stay so. */
  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly showSpecial = false,
  ) {}

  /** New text that is certain; often empty. */
  push(tokenId: number): string {
    if (this.tokenizer.isSpecial(tokenId)) return this.showSpecial ? this.special(tokenId) : '';
    this.window.push(tokenId);
    const text = this.tokenizer.decode(this.window);
    const whole = !text.endsWith(REPLACEMENT);
    const certain = whole ? text : text.slice(0, -REPLACEMENT.length);
    const fresh = certain.slice(this.given);
    this.given = Math.max(this.given, certain.length);
    if (whole && this.window.length >= WINDOW_LIMIT_TOKENS) {
      this.window = this.window.slice(-CONTEXT_TOKENS);
      this.given = this.tokenizer.decode(this.window).length;
    }
    return fresh;
  }

  /** It never joins the window: it has no text there, and a window of such tokens would look to the decoder like the start of a text. */
  private special(tokenId: number): string {
    const text = this.tokenizer.decode(this.window);
    const rest = text.slice(this.given);
    // The text goes on behind it as behind the window, but for bytes that wait for others.
    if (rest === '') this.given = text.length;
    else this.forget();
    return rest + Buffer.from(this.tokenizer.tokenBytes(tokenId)).toString('utf8');
  }

  /** What was held back, when no more tokens come. */
  flush(): string {
    const rest = this.tokenizer.decode(this.window).slice(this.given);
    this.forget();
    return rest;
  }

  private forget(): void {
    this.window = [];
    this.given = 0;
  }
}
