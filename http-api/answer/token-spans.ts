import { StringDecoder } from 'node:string_decoder';

/** A token with its share of a text. The shares of all tokens of a text, one after the other, are the text. */
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
 * Says which token brought which bytes of a text, while both come: the text may lag behind its tokens (characters of several tokens,
 * what may be the begin of a stop string), end before them (a stop string), lack some (reasoning, calls), and have others than they
 * (a decoder that drops the first space; replacement characters for bytes that are no UTF-8). Whatever comes, no byte is lost or doubled.
 */
export class TokenSpans<Token> {
  private pending: PendingToken<Token>[] = [];
  /** Text that no token has claimed. */
  private unclaimed: Buffer = NOTHING;
  private begun = false;
  /** Some of the tokens' text went elsewhere. */
  private parted = false;
  /** The last token whose text went elsewhere: it may have brought what comes next. */
  private spare: PendingToken<Token> | null = null;
  private readonly decoder = new StringDecoder('utf8');

  /** The next token. `bytes`: what it adds to a text; none for a token that is not shown. */
  add(token: Token, bytes: Uint8Array): void {
    this.pending.push({ token, bytes });
  }

  /** More of the text, brought by the tokens added so far. Gives the tokens whose share is whole by now. */
  push(text: string): TokenSpan<Token>[] {
    if (text !== '') this.unclaimed = Buffer.concat([this.unclaimed, Buffer.from(text)]);
    if (this.unclaimed.length > 0 && this.pending.length === 0 && this.spare !== null) {
      this.pending.push(this.spare);
      this.spare = null;
    }
    return this.claim();
  }

  /** What the tokens added so far have brought beside `push`ed text is no part of the text: they are not listed. */
  skip(): TokenSpan<Token>[] {
    this.parted = true;
    const last = this.pending.at(-1);
    const spans = this.unclaimed.length > 0 && last !== undefined ? [this.span(last, this.unclaimed.length)] : [];
    if (last !== undefined) this.spare = last;
    this.pending = [];
    return spans;
  }

  /** The rest, when neither text nor tokens follow. Tokens after the text's end have an empty share. */
  finish(): TokenSpan<Token>[] {
    const spans = this.claim();
    for (const pending of this.pending) spans.push(this.span(pending, this.unclaimed.length));
    this.pending = [];
    return spans;
  }

  private claim(): TokenSpan<Token>[] {
    const spans: TokenSpan<Token>[] = [];
    for (let front = this.pending[0]; front !== undefined; front = this.pending[0]) {
      // Tokens without bytes are listed with what follows them, or at the end: it may yet turn out that all went elsewhere.
      if (this.unclaimed.length === 0 && this.pending.every(({ bytes }) => bytes.length === 0)) break;
      const share = this.shareOf(front.bytes);
      if (share === 'wait') break;
      if (share === 'other') {
        spans.push(...this.realign());
        continue;
      }
      this.pending.shift();
      // All text has come of the tokens added so far: what is left is the last one's.
      spans.push(this.span(front, this.pending.length === 0 ? this.unclaimed.length : share));
    }
    return spans;
  }

  /** Bytes of the unclaimed text that are the token's; wait: more text may tell; other: the text has something else here. */
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
   * The text is not what the first token has. Tokens that match the end of the text have theirs; of those before them the last has what is
   * left, and the others, whose bytes it replaces, have nothing.
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
