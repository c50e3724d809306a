import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  commonTokens,
  type HashOfTokens,
  type Prefix,
  HASH_BLOCK_TOKENS,
  PrefixIndex,
} from '../../main-node/room/prefix-index.js';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';

/** Texts that begin alike for a while: one of two tokens at each hash block, then a tail of its own. */
const text = fc
  .record({
    hashBlocks: fc.array(fc.integer({ min: 0, max: 1 }), { maxLength: 4 }),
    tail: fc.array(fc.integer({ min: 0, max: 1 }), { maxLength: HASH_BLOCK_TOKENS - 1 }),
  })
  .map(({ hashBlocks, tail }) => [
    ...hashBlocks.flatMap((token) => Array.from({ length: HASH_BLOCK_TOKENS }, () => token)),
    ...tail,
  ]);
const prefix = fc
  .record({
    tokenIds: text,
    forked: fc.option(fc.integer({ min: 0, max: 99 }), { nil: 0 }),
    isSavedFork: fc.boolean(),
  })
  .map(({ tokenIds, forked, isSavedFork }): Prefix => ({
    tokenIds,
    isSavedFork,
    forkFrom: Math.min(forked, tokenIds.length),
  }));
const hashes = fc.constantFrom<HashOfTokens | undefined>(
  undefined,
  () => 7,
  (before, tokenIds) => before + (tokenIds[0] ?? 0),
);

/** Most positions of a prompt that one of these prefixes saves; 0: none. */
function naiveLongest(prefixes: readonly Prefix[], tokenIds: readonly number[], most: number): number {
  const saved = prefixes.map(({ tokenIds: kept, forkFrom }) => {
    const positions = Math.min(most, commonTokens(kept, tokenIds));
    return positions >= Math.max(forkFrom, HASH_BLOCK_TOKENS) ? positions : 0;
  });
  return Math.max(0, ...saved);
}

describe('the index of stored prefixes', () => {
  const hashBlocks = (...tokens: number[]): number[] =>
    tokens.flatMap((token) => Array.from({ length: HASH_BLOCK_TOKENS }, () => token));
  const kept = (tokenIds: number[], forkFrom = 0, isSavedFork = false): Prefix => ({
    tokenIds,
    forkFrom,
    isSavedFork,
  });

  it('finds the same prefix as a search through all stored ones, whatever the hashes', () => {
    fc.assert(
      fc.property(fc.array(prefix, { maxLength: 12 }), fc.array(text), hashes, (prefixes, prompts, hash) => {
        const index = new PrefixIndex<Prefix>(undefined, hash);
        for (const one of prefixes) index.insert(one);
        for (const prompt of prompts) {
          for (const most of [prompt.length, prompt.length - 1, 20]) {
            const found = index.longest(prompt, most);
            assert.equal(found?.positions ?? 0, naiveLongest(prefixes, prompt, most));
            if (found === null) continue;
            assert.ok(found.positions >= found.prefix.forkFrom);
            assert.deepEqual(found.prefix.tokenIds.slice(0, found.positions), prompt.slice(0, found.positions));
          }
        }
      }),
    );
  });

  it('returns each prefix once: when it adds nothing, when another covers it, when it is removed', () => {
    fc.assert(
      fc.property(
        fc.array(prefix, { maxLength: 12 }),
        hashes,
        fc.integer({ min: 1, max: 4 }),
        (prefixes, hash, limit) => {
          const index = new PrefixIndex<Prefix>(limit, hash);
          const gone = new Set<Prefix>();
          for (const one of prefixes) {
            for (const dropped of index.insert(one)) {
              assert.ok(!gone.has(dropped));
              gone.add(dropped);
            }
            assert.ok(index.size <= limit);
          }
          const left = [...index.inDropOrder()];
          assert.equal(left.length + gone.size, prefixes.length);
          for (const one of left) index.remove(one);
          assert.equal(index.size, 0);
          assert.equal(index.longest(hashBlocks(0, 0), 99), null);
          assert.ok([...collectionSizes([index]).values()].every((size) => size === 0));
        },
      ),
    );
  });

  it('stores one prefix of a repeated prompt, and the longer one of two', () => {
    const index = new PrefixIndex<Prefix>();
    const [short, same, long] = [kept(hashBlocks(1, 2)), kept(hashBlocks(1, 2)), kept(hashBlocks(1, 2, 3))];
    assert.deepEqual(index.insert(short), []);
    assert.deepEqual(index.insert(same), [same]);
    assert.deepEqual(index.insert(long), [short]);
    assert.deepEqual(index.insert(kept(hashBlocks(1, 2, 3).slice(0, -1))).length, 1);
    assert.deepEqual([...index.inDropOrder()], [long]);
  });

  it('stores a shorter prefix that can be forked further back', () => {
    const index = new PrefixIndex<Prefix>();
    const [short, long] = [kept(hashBlocks(1, 2), HASH_BLOCK_TOKENS), kept(hashBlocks(1, 2, 3), 2 * HASH_BLOCK_TOKENS)];
    index.insert(short);
    assert.deepEqual(index.insert(long), []);
    assert.equal(index.longest([...hashBlocks(1), 2, 9, 9], 99)?.prefix, short);
    assert.equal(index.longest(hashBlocks(1, 2, 3, 4), 99)?.prefix, long);
  });

  it('drops saved forks first, then the least recently used prefix', () => {
    const index = new PrefixIndex<Prefix>(3);
    const [first, second, savedFork] = [kept(hashBlocks(1)), kept(hashBlocks(2)), kept(hashBlocks(3), 0, true)];
    for (const one of [savedFork, first, second]) index.insert(one);
    index.touch(first);
    assert.deepEqual([...index.inDropOrder()], [savedFork, second, first]);
    const [third, fourth] = [kept(hashBlocks(4)), kept(hashBlocks(5))];
    assert.deepEqual(index.insert(third), [savedFork]);
    assert.deepEqual(index.insert(fourth), [second]);
  });
});
