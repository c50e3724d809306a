import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  commonTokens,
  type HashBlock,
  type Prefix,
  PREFIX_BLOCK_TOKENS,
  PrefixIndex,
} from '../../main-node/room/prefix-index.js';
import { collectionSizes } from '../../shared/base/runtime/collection-sizes.js';

/** Texts that begin alike for a while: one of two tokens at each block, then a tail of its own. */
const text = fc
  .record({
    blocks: fc.array(fc.integer({ min: 0, max: 1 }), { maxLength: 4 }),
    tail: fc.array(fc.integer({ min: 0, max: 1 }), { maxLength: PREFIX_BLOCK_TOKENS - 1 }),
  })
  .map(({ blocks, tail }) => [
    ...blocks.flatMap((token) => Array.from({ length: PREFIX_BLOCK_TOKENS }, () => token)),
    ...tail,
  ]);
const prefix = fc
  .record({
    tokenIds: text,
    forked: fc.option(fc.integer({ min: 0, max: 99 }), { nil: 0 }),
    isCheckpoint: fc.boolean(),
  })
  .map(({ tokenIds, forked, isCheckpoint }): Prefix => ({
    tokenIds,
    isCheckpoint,
    forkFrom: Math.min(forked, tokenIds.length),
  }));
const hashes = fc.constantFrom<HashBlock | undefined>(
  undefined,
  () => 7,
  (before, tokenIds) => before + (tokenIds[0] ?? 0),
);

/** Most positions of a prompt that one of these prefixes saves; 0: none. */
function naiveLongest(prefixes: readonly Prefix[], tokenIds: readonly number[], most: number): number {
  const saved = prefixes.map(({ tokenIds: kept, forkFrom }) => {
    const positions = Math.min(most, commonTokens(kept, tokenIds));
    return positions >= Math.max(forkFrom, PREFIX_BLOCK_TOKENS) ? positions : 0;
  });
  return Math.max(0, ...saved);
}

describe('the index of stored prefixes', () => {
  const blocks = (...tokens: number[]): number[] =>
    tokens.flatMap((token) => Array.from({ length: PREFIX_BLOCK_TOKENS }, () => token));
  const kept = (tokenIds: number[], forkFrom = 0, isCheckpoint = false): Prefix => ({
    tokenIds,
    forkFrom,
    isCheckpoint,
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
          assert.equal(index.longest(blocks(0, 0), 99), null);
          assert.ok([...collectionSizes([index]).values()].every((size) => size === 0));
        },
      ),
    );
  });

  it('stores one prefix of a repeated prompt, and the longer one of two', () => {
    const index = new PrefixIndex<Prefix>();
    const [short, same, long] = [kept(blocks(1, 2)), kept(blocks(1, 2)), kept(blocks(1, 2, 3))];
    assert.deepEqual(index.insert(short), []);
    assert.deepEqual(index.insert(same), [same]);
    assert.deepEqual(index.insert(long), [short]);
    assert.deepEqual(index.insert(kept(blocks(1, 2, 3).slice(0, -1))).length, 1);
    assert.deepEqual([...index.inDropOrder()], [long]);
  });

  it('stores a shorter prefix that can be forked further back', () => {
    const index = new PrefixIndex<Prefix>();
    const [short, long] = [kept(blocks(1, 2), PREFIX_BLOCK_TOKENS), kept(blocks(1, 2, 3), 2 * PREFIX_BLOCK_TOKENS)];
    index.insert(short);
    assert.deepEqual(index.insert(long), []);
    assert.equal(index.longest([...blocks(1), 2, 9, 9], 99)?.prefix, short);
    assert.equal(index.longest(blocks(1, 2, 3, 4), 99)?.prefix, long);
  });

  it('drops checkpoints first, then the least recently used prefix', () => {
    const index = new PrefixIndex<Prefix>(3);
    const [first, second, checkpoint] = [kept(blocks(1)), kept(blocks(2)), kept(blocks(3), 0, true)];
    for (const one of [checkpoint, first, second]) index.insert(one);
    index.touch(first);
    assert.deepEqual([...index.inDropOrder()], [checkpoint, second, first]);
    const [third, fourth] = [kept(blocks(4)), kept(blocks(5))];
    assert.deepEqual(index.insert(third), [checkpoint]);
    assert.deepEqual(index.insert(fourth), [second]);
  });
});
