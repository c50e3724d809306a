import type { TokenLogprob } from '../../shared/wire/messages.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { TokenSpan } from './token-spans.js';

/** A token with its log-probability and its alternatives. `logprob` null: no token stands before it. */
export interface ScoredToken {
  tokenId: number;
  logprob: number | null;
  top: readonly TokenLogprob[];
}

/** A token's log-probability in chats. A special token that is not shown has no text, but has its name in `top_logprobs`. */
export interface ChatLogprob {
  /** The characters that the token completes. All of them together are the content. */
  token: string;
  logprob: number;
  /** The token's bytes of the content, which may be a part of a character. */
  bytes: number[];
  top_logprobs: { token: string; logprob: number; bytes: number[] }[];
}

/** The form of text completions: one list for each property. */
export interface CompletionLogprobs {
  tokens: string[];
  token_logprobs: (number | null)[];
  top_logprobs: (Record<string, number> | null)[];
  /** The place at which each token's text begins, in characters (UTF-16) of the answer. */
  text_offset: number[];
}

/** JSON has no infinity; OpenAI writes this number for it. */
const LEAST_LOGPROB = -9999;

type TokenBytes = Pick<Tokenizer, 'tokenBytes' | 'isSpecial'>;

export function chatLogprob(span: TokenSpan<ScoredToken>, top: number, tokenizer: TokenBytes): ChatLogprob {
  const { token, bytes, text } = span;
  const own = { token: text, bytes: [...bytes] };
  const named = tokenizer.isSpecial(token.tokenId) ? alternative(token.tokenId, tokenizer) : own;
  return {
    token: own.token,
    logprob: finite(token.logprob ?? 0),
    bytes: own.bytes,
    top_logprobs: token.top.slice(0, top).map(({ tokenId, logprob }) => {
      const { token: name, bytes: nameBytes } = tokenId === token.tokenId ? named : alternative(tokenId, tokenizer);
      return { token: name, logprob: finite(logprob), bytes: nameBytes };
    }),
  };
}

function alternative(tokenId: number, tokenizer: TokenBytes): { token: string; bytes: number[] } {
  const bytes = tokenizer.tokenBytes(tokenId);
  return { token: Buffer.from(bytes).toString('utf8'), bytes: [...bytes] };
}

/** Gathers a text completion's log-probabilities. `top`: the number of alternatives that are shown. */
export class CompletionLogprobList {
  private offset = 0;

  constructor(
    private readonly top: number,
    private readonly tokenizer: TokenBytes,
  ) {}

  entriesOf(spans: readonly TokenSpan<ScoredToken>[]): CompletionLogprobs {
    const entries: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
    for (const { token, text } of spans) {
      entries.tokens.push(text);
      entries.token_logprobs.push(token.logprob === null ? null : finite(token.logprob));
      entries.top_logprobs.push(token.logprob === null ? null : this.topOf(token, token.logprob, text));
      entries.text_offset.push(this.offset);
      this.offset += text.length;
    }
    return entries;
  }

  /** The alternatives always include the token itself, a special token by its name. If two have the same text, the more likely one counts. */
  private topOf(token: ScoredToken, logprob: number, text: string): Record<string, number> {
    const { tokenizer } = this;
    const own = tokenizer.isSpecial(token.tokenId) ? nameOf(tokenizer.tokenBytes(token.tokenId)) : text;
    const named = new Map([[own, finite(logprob)]]);
    for (const { tokenId, logprob: other } of token.top.slice(0, this.top)) {
      if (tokenId === token.tokenId) continue;
      const name = nameOf(tokenizer.tokenBytes(tokenId));
      if (!named.has(name)) named.set(name, finite(other));
    }
    return Object.fromEntries(named);
  }
}

/** The bytes as text, or an escaped form if they are no valid text. */
function nameOf(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString('utf8');
  if (Buffer.from(text).equals(bytes)) return text;
  return `bytes:${[...bytes].map((byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`;
}

function finite(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : LEAST_LOGPROB;
}
