import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { LoadOutcome } from '../../native/index.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { PARTLY_LOADED_STATES, type LoadTimes } from '../../shared/decisions/caching/load-times.js';
import { LoadCosts } from '../../worker-node/loader/load-costs.js';
import { MAX_ORDERED_LOADS, orderLoads, type PendingLoad } from '../../worker-node/loader/expert-loader.js';
import { perPart } from '../../shared/model/expert-parts.js';

const PROFILE: LoadTimes = {
  signMantissaReadMs: 4,
  exponentReadMs: 0.7,
  decompressMs: 2,
  compressionRatio: 0.35,
  threads: 2,
  shards: 2,
  tensors: 3,
};
const missing = (slot: number, executeMs: number): PendingLoad => ({ slot, state: 'missing', executeMs });

describe('worker: the order of loads that main waits for together', () => {
  it('does not exist for a single load', () => {
    assert.deepEqual(orderLoads([], PROFILE), new Map());
    assert.deepEqual(orderLoads([missing(3, 1)], PROFILE), new Map());
  });

  it('begins with the expert that will run longest', () => {
    const orders = orderLoads([missing(0, 1), missing(5, 9), missing(2, 4)], PROFILE);
    const firstOf = (slot: number): number => {
      const { block, position } = orders.get(slot)?.[0] ?? assert.fail(`slot ${slot} has no order`);
      return 100 * block + position;
    };
    assert.ok(firstOf(5) < firstOf(2) && firstOf(2) < firstOf(0));
  });

  it('overlaps the reads of one expert with the decompression of another whose signs and mantissas are loaded', () => {
    const orders = orderLoads([missing(0, 1), { slot: 1, state: 'signMantissa', executeMs: 1 }], PROFILE);
    const blocks = (slot: number): number[] => orders.get(slot)?.map(({ block }) => block) ?? [];
    assert.ok(
      blocks(1).some((block) => blocks(0).includes(block)),
      'they share a block',
    );
  });

  it('gives every tensor of a bounded number of experts its own place, whatever the costs', () => {
    const loads = fc.uniqueArray(
      fc.record({
        slot: fc.nat(200),
        state: fc.constantFrom(...PARTLY_LOADED_STATES),
        executeMs: fc.double({ min: 0, max: 50, noNaN: true }),
      }),
      { minLength: 2, maxLength: MAX_ORDERED_LOADS + 4, selector: ({ slot }) => slot },
    );
    const cost = fc.double({ min: 0, max: 20, noNaN: true });
    fc.assert(
      fc.property(loads, cost, cost, cost, (pending, signMantissaReadMs, exponentReadMs, decompressMs) => {
        const orders = orderLoads(pending, { ...PROFILE, signMantissaReadMs, exponentReadMs, decompressMs });
        const ordered = pending.slice(0, MAX_ORDERED_LOADS).map(({ slot }) => slot);
        assert.deepEqual([...orders.keys()].sort(), ordered.sort());
        const places = [...orders.values()].flat().map(({ block, position }) => `${block} ${position}`);
        assert.equal(new Set(places).size, 3 * ordered.length);
      }),
      { numRuns: 50 },
    );
  });
});

describe('worker: the measured cost of loading', () => {
  const chunk = (plane: number, storedBytes: number, plainBytes: number) => ({ plane, storedBytes, plainBytes });
  const tensor = { chunks: [chunk(0, 30, 100), chunk(0, 40, 100), chunk(1, 200, 200)] };
  const expert = { gate: tensor, up: tensor, down: tensor } as unknown as ExpertSource;
  const outcome = (fields: Partial<LoadOutcome>): LoadOutcome => ({
    loaded: true,
    readBytes: 1,
    loadMs: 1,
    readMs: perPart(() => 0),
    decompressMs: 0,
    cached: perPart(() => false),
    ...fields,
  });
  const stored = { from: 'storage', entry: -1 } as const;
  const kept = { from: 'entry', entry: 4 } as const;

  it('comes from loads: only reads from storage count, and no cancelled load', () => {
    const costs = new LoadCosts(expert, 5);
    costs.add(
      perPart(() => stored),
      outcome({ readMs: { exponent: 12, signMantissa: 30 }, decompressMs: 6 }),
    );
    const oneKept = { exponent: kept, signMantissa: stored };
    costs.add(oneKept, outcome({ readMs: { exponent: 0, signMantissa: 60 }, decompressMs: 18 }));
    costs.add(
      perPart(() => stored),
      outcome({ loaded: false, readMs: perPart(() => 999) }),
    );
    assert.deepEqual(costs.loadTimes, {
      signMantissaReadMs: 15,
      exponentReadMs: 2,
      decompressMs: 2,
      compressionRatio: 0.35,
      threads: 5,
      shards: 2,
      tensors: 3,
    });
  });

  it('counts a load of one slice for that slice alone', () => {
    const costs = new LoadCosts(expert, 5);
    const none = { from: 'notWanted', entry: -1 } as const;
    const upper = { exponent: stored, signMantissa: none };
    costs.add(upper, outcome({ readMs: { exponent: 12, signMantissa: 0 }, decompressMs: 6 }));
    const lower = { exponent: none, signMantissa: stored };
    costs.add(lower, outcome({ readMs: { exponent: 0, signMantissa: 30 } }));
    const { exponentReadMs, signMantissaReadMs, decompressMs } = costs.loadTimes;
    assert.deepEqual(
      { exponentReadMs, signMantissaReadMs, decompressMs },
      {
        exponentReadMs: 2,
        signMantissaReadMs: 10,
        decompressMs: 1,
      },
    );
  });

  it('has the rates of storage and of host memory from loads of one source alone', () => {
    const costs = new LoadCosts(expert, 5);
    const fromStorage = perPart(() => stored);
    assert.deepEqual(costs.rates, { hostBytesPerS: null, storageBytesPerS: null });
    costs.add(fromStorage, outcome({ readBytes: 4000, readMs: { exponent: 1, signMantissa: 3 }, decompressMs: 2 }));
    costs.add(fromStorage, outcome({ readBytes: 0, hostBytes: 6000, decompressMs: 2 }));
    const rates = { hostBytesPerS: 3_000_000, storageBytesPerS: 1_000_000 };
    assert.deepEqual(costs.rates, rates);
    costs.add(fromStorage, outcome({ readBytes: 500, hostBytes: 500, decompressMs: 9 }));
    costs.add(
      perPart(() => kept),
      outcome({ readBytes: 0, decompressMs: 50 }),
    );
    assert.deepEqual(costs.rates, rates, 'of both, and of neither');
  });
});
