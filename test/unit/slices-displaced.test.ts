import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  displaceFor,
  displaceTo,
  sliceBytes,
  type HeldSlices,
  type Slice,
  type SliceOf,
} from '../../shared/decisions/slices/displace-slices.js';

const SIZES = { upperBytes: 4, lowerBytes: 3 };

class Held implements HeldSlices {
  constructor(private readonly orders: Readonly<Record<Slice, readonly number[]>>) {}

  holds(expert: number, slice: Slice): boolean {
    return this.orders[slice].includes(expert);
  }

  bytes(slice: Slice): number {
    return this.orders[slice].length * sliceBytes(SIZES, slice);
  }

  byUse(slice: Slice): readonly number[] {
    return this.orders[slice];
  }

  get usedBytes(): number {
    return this.bytes('upper') + this.bytes('lower');
  }
}

const upper = (expert: number): SliceOf => ({ slice: 'upper', expert });
const lower = (expert: number): SliceOf => ({ slice: 'lower', expert });

/** Experts 0 to 7 in an order of use, some of them with lower slices, which have an order of their own. */
const caches = fc
  .tuple(fc.shuffledSubarray([0, 1, 2, 3, 4, 5, 6, 7]), fc.array(fc.nat(), { minLength: 8, maxLength: 8 }))
  .map(([uppers, keys]) => {
    const withLower = uppers.filter((expert) => (keys[expert] ?? 0) % 2 === 0);
    const lowers = withLower.sort((left, right) => (keys[left] ?? 0) - (keys[right] ?? 0));
    return { uppers, lowers, held: new Held({ upper: uppers, lower: lowers }) };
  });

describe('the slices that leave a cache', () => {
  it('are lower ones first, each kind by the time since its use', () => {
    const held = new Held({ upper: [0, 1, 2], lower: [2, 0] });
    // 3 x 4 + 2 x 3 = 18 bytes
    const cache = (capacityBytes: number) => ({ ...SIZES, capacityBytes });
    assert.deepEqual(displaceFor(held, cache(22), upper(3)), []);
    assert.deepEqual(displaceFor(held, cache(21), upper(3)), [lower(2)]);
    assert.deepEqual(displaceFor(held, cache(18), upper(3)), [lower(2), lower(0)]);
    assert.deepEqual(displaceFor(held, cache(12), upper(3)), [lower(2), lower(0), upper(0)]);
    assert.deepEqual(displaceFor(held, cache(18), lower(1)), [lower(2)]);
    assert.equal(displaceFor(held, cache(14), lower(1)), null, 'no upper slice leaves for a lower one');
    assert.equal(displaceFor(held, cache(99), lower(3)), null, 'a lower slice is not there without its upper one');
    assert.equal(displaceFor(held, cache(3), upper(3)), null, 'it is larger than the cache');
  });

  it('are upper ones, too, where lower ones are spared', () => {
    const held = new Held({ upper: [0, 1, 2], lower: [2, 0] });
    // 18 bytes, of which lower slices have 6.
    const sparing = (sparedShare: number, capacityBytes = 18) => ({ ...SIZES, capacityBytes, sparedShare });
    assert.deepEqual(displaceFor(held, sparing(1 / 3), upper(3)), [lower(0), upper(0)]);
    assert.deepEqual(displaceFor(held, sparing(1 / 4), upper(3)), [lower(2), lower(0), upper(0)]);
    assert.deepEqual(displaceFor(held, sparing(1 / 2), lower(1)), [lower(0), upper(0)]);
    assert.deepEqual(displaceFor(held, sparing(1 / 3), lower(1)), [lower(2)], 'no more than the share is spared');
    assert.deepEqual(displaceFor(held, sparing(0.1), lower(1)), [lower(2)], 'not even one is spared');
    const first = new Held({ upper: [0, 1], lower: [] });
    assert.deepEqual(displaceFor(first, sparing(1 / 2, 8), lower(0)), [upper(1)], 'not the one that it belongs to');
    assert.equal(displaceFor(first, sparing(1 / 4, 8), lower(0)), null);
    assert.equal(displaceFor(new Held({ upper: [0], lower: [] }), sparing(1, 4), lower(0)), null);
  });

  it('are none of those in use', () => {
    const held = new Held({ upper: [0, 1, 2], lower: [0] });
    const cache = { ...SIZES, capacityBytes: 15 };
    assert.deepEqual(
      displaceFor(held, cache, upper(3), (expert) => expert === 0),
      [upper(1)],
    );
    assert.equal(
      displaceFor(held, cache, upper(3), () => true),
      null,
    );
    assert.deepEqual(
      displaceTo(held, SIZES, 4, (expert) => expert === 1),
      [lower(0), upper(0), upper(2)],
    );
  });

  it('leave room for what comes, in the order of their use, and no more of them leave than must', () => {
    const pins = fc.array(fc.boolean(), { minLength: 8, maxLength: 8 });
    const comings = fc.record({ slice: fc.constantFrom<Slice>('upper', 'lower'), expert: fc.nat(9) });
    fc.assert(
      fc.property(caches, pins, comings, fc.nat(50), ({ uppers, lowers, held }, pinned, coming, moreBytes) => {
        fc.pre(!held.holds(coming.expert, coming.slice));
        const capacityBytes = Math.max(0, held.usedBytes - 20) + moreBytes;
        const isPinned = (expert: number): boolean => pinned[expert] === true;
        const leaving = displaceFor(held, { ...SIZES, capacityBytes }, coming, isPinned);
        const free = (experts: readonly number[]): number[] => experts.filter((expert) => !isPinned(expert));
        const mayLeave = [...free(lowers).map(lower), ...(coming.slice === 'upper' ? free(uppers).map(upper) : [])];
        const bytesOf = (slices: readonly SliceOf[]): number =>
          slices.reduce((sum, { slice }) => sum + sliceBytes(SIZES, slice), 0);
        const comingBytes = sliceBytes(SIZES, coming.slice);
        const restBytes = (slices: readonly SliceOf[]): number => held.usedBytes - bytesOf(slices) + comingBytes;
        if (leaving === null) {
          const isAlone = coming.slice === 'lower' && !held.holds(coming.expert, 'upper');
          assert.ok(isAlone || restBytes(mayLeave) > capacityBytes, 'there was room for it');
          return;
        }
        assert.deepEqual(leaving, mayLeave.slice(0, leaving.length), 'lower before upper, each by its use');
        assert.ok(restBytes(leaving) <= capacityBytes, 'the capacity is exceeded');
        if (leaving.length > 0) assert.ok(restBytes(leaving.slice(0, -1)) > capacityBytes, 'more left than must');
        const gone = (slice: Slice): Set<number> =>
          new Set(leaving.filter((one) => one.slice === slice).map(({ expert }) => expert));
        for (const expert of lowers) {
          assert.ok(
            !gone('upper').has(expert) || gone('lower').has(expert),
            'a lower slice stays without its upper one',
          );
        }
      }),
    );
  });
});
