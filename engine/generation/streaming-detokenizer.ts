import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

/** The UTF-8 replacement character, which a decoder returns for a character whose bytes are not complete. */
const REPLACEMENT = '\uFFFD';
/** Ids that are decoded again with each new one; never empty, because a decoder may treat the first ids of a text differently. */
const CONTEXT_TOKENS = 4;
const WINDOW_LIMIT_TOKENS = 24;

/**
 * The growing text of an answer. Only certain text is returned: a character of several tokens is held back until it is complete. All returned
 * texts, with that of flush, equal tokenizer.decode of all ids, unless special tokens are shown. The cost per token does not grow with the
 * answer.
 */
export class StreamingDetokenizer {
  private window: number[] = [];
  /** Length of the window's decoded text that was returned already. */
  private given = 0;

  /** `showSpecial`: special tokens are shown in the text by their names. Bytes before one that do not complete a character stay incomplete. */
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

  /** A special token never joins the window: it has no text there, and for a decoder a window of such tokens looks like the start of a text. */
  private special(tokenId: number): string {
    const text = this.tokenizer.decode(this.window);
    const rest = text.slice(this.given);
    // The text after it continues as after the window, unless bytes of the window wait for others.
    if (rest === '') this.given = text.length;
    else this.forget();
    return rest + Buffer.from(this.tokenizer.tokenBytes(tokenId)).toString('utf8');
  }

  /** The text that was held back, when no more tokens come. */
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
