import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';

type TokenTexts = Pick<Tokenizer, 'decode' | 'isSpecial' | 'tokenBytes'>;

/** Text of a token; its bytes where it is only a part of a character. */
export function pieceOf(tokenId: number, tokenizer: TokenTexts): string | number[] {
  const bytes = Buffer.from(tokenizer.tokenBytes(tokenId));
  const text = bytes.toString('utf8');
  return Buffer.from(text).equals(bytes) ? text : [...bytes];
}

/** The text that the ids were made of. Special tokens stand in it by their names. */
export function textOf(tokenIds: readonly number[], tokenizer: TokenTexts): string {
  const special = tokenIds.findIndex((id) => tokenizer.isSpecial(id));
  // Where a decoder drops the space before a text's first word, only decode knows.
  if (special < 0) return tokenizer.decode(tokenIds);
  const rest = tokenIds.slice(special).map((id) => tokenizer.tokenBytes(id));
  return tokenizer.decode(tokenIds.slice(0, special)) + Buffer.concat(rest).toString('utf8');
}
