import assert from 'node:assert/strict';
import fc from 'fast-check';
import { HeldExperts } from '../../packs/format/held-experts.js';

describe('the set of held experts', () => {
  it('decodes from its bits unchanged', () => {
    const sizes = fc.tuple(fc.integer({ min: 1, max: 7 }), fc.integer({ min: 1, max: 11 }));
    fc.assert(
      fc.property(sizes, fc.array(fc.nat(76)), ([layers, experts], places) => {
        const held = HeldExperts.none(layers, experts);
        const wanted = new Set(places.filter((place) => place < layers * experts));
        for (const place of wanted) held.add(Math.floor(place / experts), place % experts);
        const bits = held.toBits();
        assert.equal(bits.length, Math.ceil((layers * experts) / 8));
        const again = HeldExperts.fromBits(layers, experts, bits);
        for (let place = 0; place < layers * experts; place += 1) {
          assert.equal(again.has(Math.floor(place / experts), place % experts), wanted.has(place));
        }
        assert.equal(again.isComplete, wanted.size === layers * experts);
      }),
    );
  });

  it('drops a removed expert, once', () => {
    const held = HeldExperts.all(2, 3);
    held.remove(1, 2);
    held.remove(1, 2);
    assert.ok(!held.has(1, 2) && held.has(1, 1) && !held.isComplete);
    held.add(1, 2);
    assert.ok(held.isComplete);
  });

  it('is complete when it has all experts, whatever the spare bits are', () => {
    assert.ok(HeldExperts.all(3, 5).isComplete);
    assert.ok(HeldExperts.fromBits(1, 3, Uint8Array.of(0b1111_1111)).isComplete);
    assert.ok(!HeldExperts.fromBits(1, 3, Uint8Array.of(0b1111_1011)).isComplete);
  });
});
