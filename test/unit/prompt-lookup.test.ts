import assert from 'node:assert/strict';
import fc from 'fast-check';
import { LONGEST_MATCH, MOST_PLACES, PromptLookup } from '../../main-node/drafting/prompt-lookup.js';

function lookupOf(tokens: readonly number[], expected: readonly number[][] = []): PromptLookup {
  const lookup = new PromptLookup();
  for (const text of expected) lookup.expect(text);
  for (const token of tokens) lookup.append(token);
  return lookup;
}

/** The longest end that stands earlier in a text of one piece, by trying all. */
function longestMatch(tokens: readonly number[]): number {
  for (let length = Math.min(LONGEST_MATCH, tokens.length - 1); length >= 1; length -= 1) {
    const end = tokens.slice(-length).join();
    for (let place = length - 1; place < tokens.length - 1; place += 1) {
      if (tokens.slice(place - length + 1, place + 1).join() === end) return length;
    }
  }
  return 0;
}

describe('prompt lookup', () => {
  it('proposes what followed the same tokens earlier', () => {
    assert.deepEqual(lookupOf([1, 2, 3, 4, 9, 2, 3]).propose(2), { tokenIds: [4, 9], matchLength: 2 });
  });

  it('prefers the longer end to the later place, and the later place among equal ones', () => {
    assert.deepEqual(lookupOf([1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3]).propose(1), { tokenIds: [40], matchLength: 3 });
    assert.deepEqual(lookupOf([8, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3]).propose(1), { tokenIds: [50], matchLength: 2 });
  });

  it('continues a repetition beyond the end of the text', () => {
    assert.deepEqual(lookupOf([7, 1, 2, 1, 2]).propose(5), { tokenIds: [1, 2, 1, 2, 1], matchLength: 2 });
  });

  it('proposes what followed the latest of equal single tokens where no longer end stands earlier', () => {
    assert.deepEqual(lookupOf([2, 8, 1, 2, 3, 2]).propose(2), { tokenIds: [3, 2], matchLength: 1 });
    assert.deepEqual(lookupOf([1, 2, 5, 7, 2, 3, 1, 2]).propose(1), { tokenIds: [5], matchLength: 2 });
  });

  it('proposes nothing after a new token, in a short text, or where nothing is wanted', () => {
    assert.deepEqual(lookupOf([1, 2, 3, 4]).propose(4), { tokenIds: [], matchLength: 0 });
    assert.deepEqual(lookupOf([1]).propose(4), { tokenIds: [], matchLength: 0 });
    assert.deepEqual(lookupOf([]).propose(4), { tokenIds: [], matchLength: 0 });
    assert.deepEqual(lookupOf([1, 2, 1, 2]).propose(0), { tokenIds: [], matchLength: 0 });
  });

  it('finds ends in texts that are expected, and goes neither back nor on beyond such a text', () => {
    assert.deepEqual(lookupOf([1, 2], [[9, 1, 2, 3]]).propose(8), { tokenIds: [3], matchLength: 2 });
    assert.deepEqual(lookupOf([2, 3], [[1, 2], [3]]).propose(8), { tokenIds: [], matchLength: 0 });
    assert.deepEqual(
      lookupOf(
        [3, 2],
        [
          [3, 4],
          [1, 2],
        ],
      ).propose(8),
      { tokenIds: [], matchLength: 0 },
    );
    assert.deepEqual(lookupOf([], [[1, 2, 1]]).propose(8), { tokenIds: [], matchLength: 0 });
  });

  it('finds the longest end of any text with few equal pairs, and proposes tokens that follow it', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat({ max: 4 }), { maxLength: MOST_PLACES }),
        fc.integer({ min: 1, max: 8 }),
        (tokens, limit) => {
          const { tokenIds, matchLength } = lookupOf(tokens).propose(limit);
          assert.equal(matchLength, longestMatch(tokens));
          assert.equal(tokenIds.length, matchLength === 0 ? 0 : limit);
          if (matchLength === 0) return;
          const [end, followed] = [tokens.slice(-matchLength), [...tokens, ...tokenIds]];
          const places = tokens.map((_, place) => place).filter((place) => place < tokens.length - 1);
          assert.ok(
            places.some(
              (place) =>
                followed.slice(place - matchLength + 1, place + 1).join() === end.join() &&
                followed.slice(place + 1, place + 1 + limit).join() === tokenIds.join(),
            ),
          );
        },
      ),
    );
  });
});
