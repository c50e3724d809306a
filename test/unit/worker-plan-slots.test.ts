import assert from 'node:assert/strict';
import fc from 'fast-check';
import { planSlots } from '../../engine/planning/plan-slots.js';

const bytesFor = (maxRows: number) => ({ slotBytes: 1000, sharedBytes: 10 * maxRows });

describe('worker: the slots within a memory budget', () => {
  it('are as many as wanted where they fit or no limit is set', () => {
    assert.deepEqual(planSlots({ slots: 4, maxRows: 64, cacheBytes: 0 }, null, bytesFor), {
      slots: 4,
      maxRows: 64,
      cacheBytes: 0,
    });
    assert.deepEqual(planSlots({ slots: 4, maxRows: 64, cacheBytes: 0 }, 4640, bytesFor), {
      slots: 4,
      maxRows: 64,
      cacheBytes: 0,
    });
  });

  it('are fewer where the budget is smaller', () => {
    assert.deepEqual(planSlots({ slots: 4, maxRows: 64, cacheBytes: 0 }, 4639, bytesFor), {
      slots: 3,
      maxRows: 64,
      cacheBytes: 0,
    });
  });

  it('take shorter native calls rather than none', () => {
    assert.deepEqual(planSlots({ slots: 4, maxRows: 64, cacheBytes: 0 }, 1100, bytesFor), {
      slots: 1,
      maxRows: 8,
      cacheBytes: 0,
    });
  });

  it('give an error with the missing bytes when not one fits', () => {
    assert.throws(() => planSlots({ slots: 4, maxRows: 64, cacheBytes: 0 }, 1009, bytesFor), {
      code: 'DEVICE_OUT_OF_MEMORY',
      message:
        /one expert of this model takes 1000 bytes .* all slots share 10 bytes; the budget has 1009 left for both/,
    });
  });

  it('come before the cache, which gets the rest', () => {
    const wanted = { slots: 4, maxRows: 64, cacheBytes: 3000 };
    assert.deepEqual(planSlots(wanted, null, bytesFor), wanted);
    assert.deepEqual(planSlots(wanted, 7640, bytesFor), wanted);
    assert.deepEqual(planSlots(wanted, 5000, bytesFor), { ...wanted, cacheBytes: 360 });
    assert.deepEqual(planSlots(wanted, 3640, bytesFor), { ...wanted, slots: 3, cacheBytes: 0 });
  });

  it('never exceed the budget and the wanted number', () => {
    const numbers = fc.record({
      slots: fc.integer({ min: 1, max: 20 }),
      maxRows: fc.integer({ min: 1, max: 500 }),
      cacheBytes: fc.nat(20_000),
      freeBytes: fc.integer({ min: 0, max: 40_000 }),
    });
    fc.assert(
      fc.property(numbers, ({ slots, maxRows, cacheBytes, freeBytes }) => {
        if (freeBytes < 1010) {
          assert.throws(() => planSlots({ slots, maxRows, cacheBytes }, freeBytes, bytesFor), {
            code: 'DEVICE_OUT_OF_MEMORY',
          });
          return;
        }
        const plan = planSlots({ slots, maxRows, cacheBytes }, freeBytes, bytesFor);
        const { slotBytes, sharedBytes } = bytesFor(plan.maxRows);
        assert.ok(plan.slots >= 1 && plan.slots <= slots && plan.maxRows <= maxRows);
        assert.ok(plan.cacheBytes >= 0 && plan.cacheBytes <= cacheBytes);
        assert.ok(plan.slots * slotBytes + sharedBytes + plan.cacheBytes <= freeBytes);
      }),
    );
  });
});
