import { wordlist } from '@scure/bip39/wordlists/english';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';

const WORD_BITS = 11;
const WORD_COUNT = 4;

/**
 * The first 44 bits of an authority's digest as four words, for two people to compare. A false authority with the same words
 * takes about 2^44 tries, each with a new key.
 * @param digest 64 digits of base 16 (authorityDigest)
 */
export function authorityWords(digest: string): string {
  const bits = BigInt(`0x${digest.slice(0, (WORD_BITS * WORD_COUNT) / 4)}`);
  const places = Array.from({ length: WORD_COUNT }, (_, index) => {
    const behind = BigInt(WORD_BITS * (WORD_COUNT - 1 - index));
    return Number((bits >> behind) & BigInt(wordlist.length - 1));
  });
  return places.map((place) => requirePresent(wordlist[place], 'The list of words is not of 2048 words.')).join(' ');
}
