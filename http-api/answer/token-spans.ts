import { StringDecoder } from 'node:string_decoder';

/** A token with its share of a text. The shares of all tokens, in order, give the text. */
export interface TokenSpan<Token> {
  token: Token;
  bytes: Uint8Array;
  /** The characters that these bytes complete. */
  text: string;
}

interface PendingToken<Token> {
  token: Token;
  bytes: Uint8Array;
}

const SPACE = 0x20;
const NOTHING = Buffer.alloc(0);

/**
 * Finds which token brought which bytes of a text, while tokens and text arrive. The text may lag behind its tokens (a character of several
 * tokens, a possible beginning of a stop string). It may end before them (a stop string), lack parts of them (reasoning, calls), or differ
 * (a decoder drops the first space; replacement characters stand for bytes that are no UTF-8). No byte is lost or doubled in any case.
 */
export class TokenSpans<Token> {
  private pending: PendingToken<Token>[] = [];
  /** Text that no token has claimed. */
  private unclaimed: Buffer = NOTHING;
  private begun = false;
  /** True: some of the tokens' text belongs to another part of the answer. */
  private parted = false;
  /** The last token whose text belongs to another part; it may also have brought the next text. */
  private spare: PendingToken<Token> | null = null;
  private readonly decoder = new StringDecoder('utf8');

  /** Adds the next token. `bytes`: the bytes that it adds to a text; empty for a token that is not shown. */
  add(token: Token, bytes: Uint8Array): void {
    this.pending.push({ token, bytes });
  }

  /** Adds text that the tokens so far have brought. Returns the tokens whose share is now complete. */
  push(text: string): TokenSpan<Token>[] {
    if (text !== '') this.unclaimed = Buffer.concat([this.unclaimed, Buffer.from(text)]);
    if (this.unclaimed.length > 0 && this.pending.length === 0 && this.spare !== null) {
      this.pending.push(this.spare);
      this.spare = null;
    }
    return this.claim();
  }

  /** Drops the tokens so far: apart from `push`ed text, they brought text of another part of the answer, so they are not listed. */
  skip(): TokenSpan<Token>[] {
    this.parted = true;
    const last = this.pending.at(-1);
    const spans = this.unclaimed.length > 0 && last !== undefined ? [this.span(last, this.unclaimed.length)] : [];
    if (last !== undefined) this.spare = last;
    this.pending = [];
    return spans;
  }

  /** Returns the rest, when neither text nor tokens follow. Tokens after the text's end have an empty share. */
  finish(): TokenSpan<Token>[] {
    const spans = this.claim();
    for (const pending of this.pending) spans.push(this.span(pending, this.unclaimed.length));
    this.pending = [];
    return spans;
  }

  private claim(): TokenSpan<Token>[] {
    const spans: TokenSpan<Token>[] = [];
    for (let front = this.pending[0]; front !== undefined; front = this.pending[0]) {
      // Tokens without bytes are listed with the next token or at the end: all of them may still belong to another part.
      if (this.unclaimed.length === 0 && this.pending.every(({ bytes }) => bytes.length === 0)) break;
      const share = this.shareOf(front.bytes);
      if (share === 'wait') break;
      if (share === 'other') {
        spans.push(...this.realign());
        continue;
      }
      this.pending.shift();
      // The tokens so far have brought all the text, so the last token gets the rest.
      spans.push(this.span(front, this.pending.length === 0 ? this.unclaimed.length : share));
    }
    return spans;
  }

  /** Number of bytes of the unclaimed text that belong to the token; wait: more text may decide; other: the text differs here. */
  private shareOf(bytes: Uint8Array): number | 'wait' | 'other' {
    const exact = this.fit(bytes);
    if (exact !== 'other' || this.begun || bytes[0] !== SPACE) return exact;
    return this.fit(bytes.subarray(1));
  }

  private fit(bytes: Uint8Array): number | 'wait' | 'other' {
    const length = Math.min(bytes.length, this.unclaimed.length);
    if (this.unclaimed.compare(bytes, 0, length, 0, length) !== 0) return 'other';
    return length === bytes.length ? length : 'wait';
  }

  /**
   * Handles text that does not begin with the first token's bytes. Tokens that match the end of the text get their bytes. The last token
   * before them gets the rest of the text, and earlier tokens get nothing.
   */
  private realign(): TokenSpan<Token>[] {
    let end = this.unclaimed.length;
    let matched = this.pending.length;
    for (; matched > 1; matched--) {
      const bytes = this.pending[matched - 1]?.bytes ?? NOTHING;
      if (bytes.length > end || this.unclaimed.compare(bytes, 0, bytes.length, end - bytes.length, end) !== 0) break;
      end -= bytes.length;
    }
    const group = this.pending.slice(0, matched);
    this.pending = this.pending.slice(matched);
    const last = group.length - 1;
    const listed = this.parted ? group.slice(end === 0 ? group.length : last) : group;
    return listed.map((pending) => this.span(pending, pending === group[last] ? end : 0));
  }

  private span({ token }: PendingToken<Token>, length: number): TokenSpan<Token> {
    const bytes = this.unclaimed.subarray(0, length);
    this.unclaimed = this.unclaimed.subarray(length);
    if (length > 0) this.begun = true;
    return { token, bytes, text: this.decoder.write(bytes) };
  }
}
