import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { MachineTimes } from '../../engine/planning/fit-machine-times.js';
import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';
import { NO_CAPACITIES, spreadCapacities } from '../../shared/decisions/caching/pool-capacities.js';
import { CacheResidency, fillBudget, residencyCosts, withinEntries } from '../../worker-node/cache/cache-residency.js';
import { planStates, type WorkerCacheRequest } from '../../worker-node/cache/worker-cache-plan.js';
import { PassTiming } from '../../worker-node/executor/pass-timing.js';

/** Times of an expert's load: 4 ms to read, 1 ms to decompress. */
const LOAD: LoadTimes = {
  tensors: 1,
  shards: 1,
  threads: 1,
  compressionRatio: 0.5,
  decompressMs: 1,
  signMantissaReadMs: 3,
  exponentReadMs: 1,
};
const EXPERT_BYTES = { full: 10, compressed: 7 };
const EXPERTS = 8;

function residencyOf(full: number, compressed: number, layers: readonly number[]): CacheResidency {
  const capacities = { ...NO_CAPACITIES, full, compressed };
  const bytes = full * EXPERT_BYTES.full + compressed * EXPERT_BYTES.compressed;
  const residency = new CacheResidency({ experts: EXPERTS, capacities, bytes, expertBytes: EXPERT_BYTES });
  residency.begin(spreadCapacities(capacities, layers, EXPERTS));
  return residency;
}

function totals(capacities: ReadonlyMap<number, PoolCapacities> | null): [number, number] {
  const all = [...(capacities ?? [])].map(([, each]) => each);
  return [all.reduce((sum, { full }) => sum + full, 0), all.reduce((sum, { compressed }) => sum + compressed, 0)];
}

describe('worker: the planned cache (policy residency)', () => {
  it('keeps less where computing hides the loads, and grows again where loads are waited for', () => {
    const residency = residencyOf(4, 4, [3, 5]);
    const slow = { computeMs: 1000, activated: 2 };
    const fast = { computeMs: 0, activated: 2 };
    const [full, compressed] = totals(residency.plan(slow, LOAD, 0));
    assert.ok(full + compressed < 8, 'less of each layer');
    let plan = residency.plan(slow, LOAD, 0);
    for (let step = 0; plan !== null && step < 20; step += 1) plan = residency.plan(slow, LOAD, 0);
    assert.equal(plan, null, 'it comes to rest');
    plan = residency.plan(fast, LOAD, 0);
    assert.ok(plan !== null && totals(plan)[0] + totals(plan)[1] > 0);
    let last = plan;
    for (let step = 0; step < 20; step += 1) last = residency.plan(fast, LOAD, 0) ?? last;
    assert.deepEqual(totals(last), [4, 4], 'all entries are used again');
    assert.deepEqual([...(last ?? new Map<number, never>()).keys()], [3, 5]);
  });

  it('shrinks at once for other uses of memory, and grows no more than they allow', () => {
    const residency = residencyOf(8, 0, [3, 5]);
    const bytes = 8 * EXPERT_BYTES.full;
    assert.equal(residency.fit(LOAD, 0), null);
    const lent = 3 * EXPERT_BYTES.full;
    assert.equal(totals(residency.fit(LOAD, lent))[0], 5);
    assert.equal(residency.capacities.full, 5);
    assert.equal(residency.fit(LOAD, lent), null, 'it fits');
    assert.equal(residency.plan({ computeMs: 0, activated: 2 }, LOAD, lent), null, 'there is no room to raise');
    const raised = residency.plan({ computeMs: 0, activated: 2 }, LOAD, EXPERT_BYTES.full);
    assert.equal(totals(raised)[0], 7, 'one of each layer');
    assert.equal(totals(residency.fit(LOAD, bytes + 1))[0], 0, 'others have everything');
  });

  it('plans nothing without layers', () => {
    assert.equal(residencyOf(1, 1, []).plan({ computeMs: 1, activated: 1 }, LOAD, 0), null);
  });

  it('never has more than the existing entries, nor more experts than a layer has', () => {
    const seen = fc.record({
      computeMs: fc.double({ min: 0, max: 100, noNaN: true }),
      activated: fc.integer({ min: 0, max: EXPERTS }),
    });
    fc.assert(
      fc.property(
        fc.nat(20),
        fc.nat(20),
        fc.integer({ min: 1, max: 6 }),
        fc.array(seen, { maxLength: 12 }),
        (full, compressed, layerCount, histories) => {
          const layers = Array.from({ length: layerCount }, (_, layer) => 2 * layer);
          const residency = residencyOf(full, compressed, layers);
          for (const passes of histories) {
            const plan = residency.plan(passes, LOAD, 0);
            if (plan === null) continue;
            const [keptFull, keptCompressed] = totals(plan);
            assert.ok(keptFull <= full && keptCompressed <= compressed);
            assert.deepEqual([...plan.keys()], layers);
            for (const each of plan.values()) {
              assert.ok(each.full >= 0 && each.compressed >= 0 && each.full + each.compressed <= EXPERTS);
            }
          }
        },
      ),
    );
  });

  it('stores an expert in an entry of the other state where its own state has none', () => {
    const layers = [
      { plain: 2, compressed: 1, offloaded: 1 },
      { plain: 0, compressed: 3, offloaded: 1 },
    ];
    const at = (full: number, compressed: number, exchanges = true) =>
      withinEntries(layers, { ...NO_CAPACITIES, full, compressed }, exchanges);
    assert.deepEqual(at(2, 4), layers);
    assert.deepEqual(at(4, 2), [layers[0], { plain: 2, compressed: 1, offloaded: 1 }]);
    assert.deepEqual(at(4, 2, false), [layers[0], { plain: 0, compressed: 1, offloaded: 3 }]);
    assert.deepEqual(at(0, 1), [
      { plain: 0, compressed: 1, offloaded: 3 },
      { plain: 0, compressed: 0, offloaded: 4 },
    ]);
  });

  it('fills a budget with the best savings: compressed experts, and whole ones where all fit', () => {
    const costs = residencyCosts(LOAD, EXPERT_BYTES, 1);
    assert.deepEqual(costs.loadMs, { compressed: 1, offloaded: 5 });
    const small = fillBudget({ experts: EXPERTS, layers: 2, bytes: 60 }, costs);
    assert.ok(small.compressed >= 6 && small.full * 10 + small.compressed * 7 <= 60, JSON.stringify(small));
    const large = fillBudget({ experts: EXPERTS, layers: 2, bytes: 1000 }, costs);
    assert.deepEqual(large, { ...NO_CAPACITIES, full: 16 });
    // Parts that take as much as the expert.
    const plain = residencyCosts(LOAD, { full: 10, compressed: 12 }, 1);
    assert.ok(plain.bytes.compressed < plain.bytes.plain);
  });

  it('has whole experts only, within the budget, where stored parts take as much as the expert', () => {
    const entryBytes = { full: 10, exponent: 6, signMantissa: 6 };
    const request = { budgetBytes: 65, entryBytes, layers: 2, experts: EXPERTS };
    const { capacities, usedBytes } = planStates(request as WorkerCacheRequest, { load: LOAD } as MachineTimes);
    assert.deepEqual(capacities, { ...NO_CAPACITIES, full: 6 });
    assert.equal(usedBytes, 60);
  });
});

describe('worker: the record of passes', () => {
  const at = (sequence: number, position: number, layer: number) => ({
    layer,
    rows: [],
    pass: { sequence, position, branch: 0 },
  });

  it('counts passes and the time between their layers, without the waits for loads', () => {
    const timing = new PassTiming();
    assert.equal(timing.asked(at(1, 4, 0), 2, 100), true);
    assert.equal(timing.asked(at(1, 4, 2), 2, 110), false);
    timing.stalled(2, 113);
    timing.stalled(2, 112);
    timing.stalled(7, 119);
    assert.equal(timing.asked(at(1, 4, 4), 2, 120), false);
    assert.equal(timing.asked(at(1, 5, 0), 1, 500), true, 'what main does between passes is not counted');
    assert.equal(timing.asked(at(1, 5, 2), 1, 505), false);
    assert.equal(timing.seen, 2);
    assert.deepEqual(timing.take(), { computeMs: (10 + 7 + 5) / 2, activated: 8 / 5 });
    assert.equal(timing.seen, 0);
    assert.deepEqual(timing.take(), { computeMs: 0, activated: 0 });
  });

  it('counts passes of several answers that take turns as one pass each', () => {
    const timing = new PassTiming();
    for (const layer of [0, 2, 4]) {
      assert.equal(timing.asked(at(1, 4, layer), 2, 10 * layer), layer === 0);
      assert.equal(timing.asked(at(2, 9, layer), 2, 10 * layer + 5), layer === 0);
    }
    assert.equal(timing.seen, 2);
    assert.deepEqual(timing.take(), { computeMs: 40, activated: 2 });
  });

  it('counts another sequence, and the same position again, as other passes', () => {
    const timing = new PassTiming();
    timing.asked(at(1, 4, 2), 1, 0);
    assert.equal(timing.asked(at(2, 4, 3), 1, 1), true);
    assert.equal(timing.asked(at(2, 4, 0), 1, 2), true);
    assert.equal(timing.asked(at(2, 4, 0), 1, 3), false, 'a second request for the same layer');
  });
});
