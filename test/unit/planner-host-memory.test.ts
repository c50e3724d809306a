import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  AUTOMATIC_MARGIN_BYTES,
  type HoldCandidate,
  hostMemoryBudget,
  planDividedExperts,
  planHeldExperts,
  PRESSURE_BYTES,
} from '../../worker-node/loader/host-memory-plan.js';

const GIB = 1024 ** 3;

const candidates = fc.uniqueArray(
  fc.record({
    layer: fc.nat(5),
    expert: fc.nat(7),
    bytes: fc.integer({ min: 1, max: 40 }),
    activations: fc.nat(30),
    isCached: fc.boolean(),
    isHeld: fc.boolean(),
  }),
  { selector: keyOf, maxLength: 48 },
);

function keyOf({ layer, expert }: Pick<HoldCandidate, 'layer' | 'expert'>): string {
  return `${layer} ${expert}`;
}

const bytesOf = (chosen: readonly HoldCandidate[]): number => chosen.reduce((sum, { bytes }) => sum + bytes, 0);

describe('a layer divided between host memory and storage (FluxMoE, equations 6 to 8)', () => {
  const layersOf = (layers: number, more: Partial<HoldCandidate> = {}): HoldCandidate[] =>
    Array.from({ length: layers * 12 }, (_, index) => ({
      layer: index % layers,
      expert: Math.floor(index / layers),
      bytes: 10,
      activations: index,
      isCached: false,
      isHeld: false,
      ...more,
    }));
  const counts = (chosen: readonly HoldCandidate[]): number[] =>
    [0, 1, 2].map((layer) => chosen.filter((candidate) => candidate.layer === layer).length);
  const rates = { hostBytesPerS: 300, storageBytesPerS: 100 };

  it('ends together in every layer: the most used experts are held', () => {
    const chosen = planDividedExperts(layersOf(3), 1e6, rates);
    assert.deepEqual(counts(chosen), [9, 9, 9]);
    assert.ok(chosen.every(({ expert }) => expert >= 3));
    assert.deepEqual(counts(chosen.slice(0, 3)), [1, 1, 1], 'layers are filled evenly');
    assert.deepEqual(counts(planDividedExperts(layersOf(3), 1e6, { ...rates, hostBytesPerS: 100 })), [6, 6, 6]);
  });

  it('stays within the budget, each layer the same, and uses all of it until rates are known', () => {
    assert.deepEqual(counts(planDividedExperts(layersOf(3), 125, rates)), [4, 4, 4]);
    assert.deepEqual(counts(planDividedExperts(layersOf(3), 1e6, { ...rates, hostBytesPerS: null })), [12, 12, 12]);
    assert.deepEqual(planDividedExperts([], 100, rates), []);
  });

  it('leaves out whole experts of the cache, and drops nothing for a rate that has hardly changed', () => {
    assert.deepEqual(planDividedExperts(layersOf(3, { isCached: true }), 1e6, rates), []);
    assert.equal(planDividedExperts(layersOf(3, { isCached: true, isHeld: true }), 1e6, rates).length, 36);
    const held = layersOf(3).map((candidate) => ({ ...candidate, isHeld: candidate.expert >= 3 }));
    assert.deepEqual(counts(planDividedExperts(held, 1e6, { ...rates, hostBytesPerS: 260 })), [9, 9, 9]);
    assert.deepEqual(counts(planDividedExperts(held, 1e6, { ...rates, hostBytesPerS: 100 })), [6, 6, 6]);
  });

  it('fits the budget, each expert once, and stays the same once it is held', () => {
    const rate = fc.option(fc.integer({ min: 1, max: 1000 }));
    const drawnRates = fc.record({ hostBytesPerS: rate, storageBytesPerS: rate });
    fc.assert(
      fc.property(candidates, fc.nat(600), drawnRates, (all, budget, drawn) => {
        const chosen = planDividedExperts(all, budget, drawn);
        assert.ok(bytesOf(chosen) <= budget + 1e-6);
        const first = new Set(chosen.map(keyOf));
        assert.equal(first.size, chosen.length);
        const held = all.map((candidate) => ({ ...candidate, isHeld: first.has(keyOf(candidate)) }));
        const again = new Set(planDividedExperts(held, budget, drawn).map(keyOf));
        for (const key of first) assert.ok(again.has(key), `${key} is dropped again`);
      }),
    );
  });
});

describe('experts to hold in host memory', () => {
  it('fit the budget, each once, and none that would still fit is left out', () => {
    fc.assert(
      fc.property(candidates, fc.nat(600), (all, budget) => {
        const chosen = planHeldExperts(all, budget);
        assert.ok(bytesOf(chosen) <= budget);
        assert.equal(new Set(chosen.map(keyOf)).size, chosen.length);
        const left = all.filter((candidate) => !chosen.includes(candidate));
        assert.ok(left.every(({ bytes }) => bytes > budget - bytesOf(chosen)));
      }),
    );
  });

  it('are the most used ones where all have one size and none is cached or held', () => {
    fc.assert(
      fc.property(candidates, fc.nat(48), (drawn, places) => {
        const all = drawn.map((candidate) => ({ ...candidate, bytes: 1, isCached: false, isHeld: false }));
        const chosen = planHeldExperts(all, places);
        const least = Math.min(...chosen.map(({ activations }) => activations));
        const left = all.filter((candidate) => !chosen.includes(candidate));
        assert.equal(chosen.length, Math.min(places, all.length));
        assert.ok(left.every(({ activations }) => chosen.length === 0 || activations <= least));
      }),
    );
  });

  it('stay the same once they are held', () => {
    fc.assert(
      fc.property(candidates, fc.nat(600), (all, budget) => {
        const first = new Set(planHeldExperts(all, budget).map(keyOf));
        const held = all.map((candidate) => ({ ...candidate, isHeld: first.has(keyOf(candidate)) }));
        const again = new Set(planHeldExperts(held, budget).map(keyOf));
        assert.deepEqual(again, first);
      }),
    );
  });

  it('come in the order of layers where nothing is on record', () => {
    const all = [3, 1, 2, 0].map((layer) => ({
      layer,
      expert: 1,
      bytes: 10,
      activations: 0,
      isCached: false,
      isHeld: false,
    }));
    assert.deepEqual(
      planHeldExperts(all, 25).map(({ layer }) => layer),
      [0, 1],
    );
  });

  it('leave out cached ones first, and a held one only for one that is clearly more used', () => {
    const plain = { layer: 0, bytes: 10, isCached: false, isHeld: false };
    const cached = { ...plain, expert: 0, activations: 30, isCached: true };
    const rare = { ...plain, expert: 1, activations: 10 };
    assert.deepEqual(planHeldExperts([cached, rare], 10), [rare]);
    const held = { ...plain, expert: 2, activations: 9, isHeld: true };
    assert.deepEqual(planHeldExperts([held, rare], 10), [held]);
    const frequent = { ...plain, expert: 3, activations: 20 };
    assert.deepEqual(planHeldExperts([held, frequent], 10), [frequent]);
  });
});

describe('the budget of host memory', () => {
  const reading = fc.record({ freeBytes: fc.nat(64 * 1024).map((mib) => mib * 1024 ** 2), heldBytes: fc.nat(2 ** 40) });
  const setting = fc.oneof(fc.constant('auto' as const), fc.nat(2 ** 40));

  it('is never above the requested size, nor below 0', () => {
    fc.assert(
      fc.property(setting, reading, (asked, reported) => {
        const budget = hostMemoryBudget(asked, reported);
        assert.ok(budget >= 0 && (asked === 'auto' || budget <= asked));
      }),
    );
  });

  it('leaves the host its margin, whatever else is allocated', () => {
    fc.assert(
      fc.property(setting, reading, (asked, { freeBytes, heldBytes }) => {
        const budget = hostMemoryBudget(asked, { freeBytes, heldBytes });
        const marginBytes = asked === 'auto' ? AUTOMATIC_MARGIN_BYTES : PRESSURE_BYTES;
        if (budget > 0) assert.ok(freeBytes + heldBytes - budget >= marginBytes - 1);
      }),
    );
  });

  it('is stable: filling it changes nothing', () => {
    fc.assert(
      fc.property(setting, reading, (asked, { freeBytes, heldBytes }) => {
        const budget = hostMemoryBudget(asked, { freeBytes, heldBytes });
        const filled = { freeBytes: freeBytes + heldBytes - budget, heldBytes: budget };
        assert.ok(Math.abs(hostMemoryBudget(asked, filled) - budget) <= 1);
      }),
    );
  });

  it('shrinks under pressure by the missing bytes, and grows only well above the margin', () => {
    const heldBytes = 2 * GIB;
    assert.equal(
      hostMemoryBudget(4 * GIB, { freeBytes: PRESSURE_BYTES / 2, heldBytes }),
      heldBytes - PRESSURE_BYTES / 2,
    );
    assert.equal(hostMemoryBudget(4 * GIB, { freeBytes: PRESSURE_BYTES * 1.1, heldBytes }), heldBytes);
    assert.equal(hostMemoryBudget(4 * GIB, { freeBytes: 8 * GIB, heldBytes }), 4 * GIB);
    assert.equal(hostMemoryBudget('auto', { freeBytes: 16 * GIB, heldBytes: 0 }), 11 * GIB);
    assert.equal(hostMemoryBudget('auto', { freeBytes: GIB, heldBytes: 0 }), 0);
  });
});
