import assert from 'node:assert/strict';
import { createOutputConstraint } from '../../engine/output-format/create-output-constraint.js';
import { formatVocabulary, type TokenTexts } from '../../engine/output-format/format-vocabulary.js';
import type { FormatVocabulary, OutputConstraint } from '../../engine/output-format/output-constraint.js';
import type { OutputFormat } from '../../shared/wire/messages.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { runAtOnce } from '../../shared/base/runtime/work-steps.js';

/** A vocabulary to answer with. */
export interface AnsweringVocabulary {
  texts: TokenTexts;
  vocabulary: FormatVocabulary;
  endTokenIds: readonly number[];
}

/** Special tokens of `smallVocabulary`, behind its end token. */
export const SMALL_SPECIAL = ['<tool>', '<|say|>'];

/** Tokens that contain several signs of JSON, or parts of characters. */
const LONG_TOKENS = [
  '{"',
  '"}',
  '"},{"',
  '":',
  '": "',
  '": ',
  '",',
  '", "',
  '"]',
  '}]',
  'true',
  'null',
  '12',
  '.5',
  '00',
  'e1',
  '-1',
  '\\u',
  '\\"',
  '\\n',
  '\\ud83e',
  'é',
  '\n  ',
  ' ',
  ' {',
  '🦊',
  'ab',
  'foo',
  'name',
  '</tool>',
  '<tool',
  'yes',
];

/** Every byte, LONG_TOKENS, two parts of characters, an end token and special tokens. */
export function smallVocabulary(bytes: readonly number[] = [...Array(256).keys()]): AnsweringVocabulary {
  const encoder = new TextEncoder();
  const plain = bytes.map((byte) => Uint8Array.of(byte));
  plain.push(...LONG_TOKENS.map((text) => encoder.encode(text)), Uint8Array.of(0xf0, 0x9f), Uint8Array.of(0x8a, 0x22));
  const end = plain.length;
  const named = ['<|end|>', ...SMALL_SPECIAL].map((name) => encoder.encode(name));
  const all = [...plain, ...named];
  const texts: TokenTexts = {
    tokenBytes: (id) => all[id] ?? new Uint8Array(0),
    isSpecial: (id) => id >= end && id < all.length,
  };
  // Two ids without a token, as models have them.
  return { texts, vocabulary: formatVocabulary(texts, all.length + 2), endTokenIds: [end] };
}

export function textOfAnswer(answer: readonly number[], { texts }: AnsweringVocabulary): string {
  const bytes = Buffer.concat(answer.map((id) => texts.tokenBytes(id)));
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
}

/** Ids that the mask allows. */
export function idsOf(mask: Uint8Array): number[] {
  return [...mask.keys()].filter((id) => mask[id] === 1);
}

/** An answer of random tokens that the format allows, and how it ended. */
export interface RandomAnswer {
  tokenIds: number[];
  /** The answer ended by itself, by an end token, or because the room was used up. */
  end: 'closed' | 'end token' | 'room';
}

export function answerAtRandom(
  constraint: OutputConstraint,
  { endTokenIds }: AnsweringVocabulary,
  roomTokens: number,
  random: SeededRandom,
): RandomAnswer {
  const tokenIds: number[] = [];
  while (tokenIds.length < roomTokens) {
    if (constraint.isClosed(tokenIds)) return { tokenIds, end: 'closed' };
    const mask = runAtOnce(constraint.allowed(tokenIds, roomTokens - tokenIds.length));
    assert.ok(mask !== null, 'an allowed token was not followed');
    const ids = idsOf(mask);
    assert.ok(ids.length > 0, 'no token is allowed');
    const tokenId = random.pick(ids);
    if (endTokenIds.includes(tokenId)) return { tokenIds, end: 'end token' };
    tokenIds.push(tokenId);
  }
  return { tokenIds, end: constraint.isClosed(tokenIds) ? 'closed' : 'room' };
}

export function constraintOf(format: OutputFormat, { vocabulary, endTokenIds }: AnsweringVocabulary): OutputConstraint {
  return createOutputConstraint(format, vocabulary, endTokenIds);
}
