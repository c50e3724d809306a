/** The tokens of a text, without the prompts by which recall is measured. The text is read in pieces, so that a long one takes no memory for tokens that nobody wants. */
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import { asksReserved, LONGEST_RESERVED, plainText } from './reserved-prompts.js';
import { throwIfInterrupted } from './interruption.js';

/** Characters of a piece. One with a prompt that is reserved is left out whole. */
const PIECE_CHARACTERS = 4096;

/** Cuts a text into pieces: behind the last line that a piece holds, else behind its last space, else between two characters. Pure. */
export function* piecesOf(text: string, most = PIECE_CHARACTERS): Generator<string> {
  for (let start = 0; start < text.length;) {
    const end = start + most >= text.length ? text.length : endOfPiece(text, start, start + most);
    yield text.slice(start, end);
    start = end;
  }
}

function endOfPiece(text: string, start: number, limit: number): number {
  for (const between of ['\n', ' ']) {
    const place = text.lastIndexOf(between, limit - 1);
    if (place >= start) return place + 1;
  }
  // Both halves of a character beyond 16 bits stay together.
  const isHalved = /[\uD800-\uDBFF]/.test(text.charAt(limit - 1)) && limit - 1 > start;
  return isHalved ? limit - 1 : limit;
}

/** Leaves out the pieces with which the text would have a prompt by which recall is measured, also one that begins in a piece before. Pure. */
export function* withoutReserved(pieces: Iterable<string>): Generator<string> {
  let before = '';
  for (const piece of pieces) {
    const both = before + piece;
    if (asksReserved(both)) continue;
    yield piece;
    // Spaces between two words are one there; the one at the end counts, since the next piece may go on with the same word.
    const space = /\s$/.test(both) ? ' ' : '';
    before = plainText(both).slice(-LONGEST_RESERVED) + space;
  }
}

/** The tokens that are wanted of a text. */
export interface WantedTokens {
  /** Most of them. */
  readonly tokens: number;
  /** Ids from here on are left out. */
  readonly vocabSize: number;
  readonly signal: AbortSignal;
  readonly runtime: Pick<Runtime, 'nextTurn'>;
}

/** The first tokens of a text, begun as the tokenizer begins a text. @throws CANCELLED */
export async function tokensOfText(
  tokenizer: Pick<Tokenizer, 'encode' | 'encodeRendered'>,
  text: string,
  { tokens, vocabSize, signal, runtime }: WantedTokens,
): Promise<number[]> {
  const ids: number[] = [];
  for (const piece of withoutReserved(piecesOf(text))) {
    throwIfInterrupted(signal);
    const own = ids.length === 0 ? tokenizer.encode(piece) : tokenizer.encodeRendered(piece);
    for (const id of own) if (id < vocabSize) ids.push(id);
    if (ids.length >= tokens) break;
    // Signals are heard between two pieces.
    await new Promise<void>((resolve) => runtime.nextTurn(resolve));
  }
  return ids.slice(0, tokens);
}
