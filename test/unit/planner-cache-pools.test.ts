import {
  EXPERT_POLICIES,
  type ExpertPolicy,
  poolsOf as poolsOfPolicy,
  type PoolCapacities,
} from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { CacheUse, UseLoaded } from '../../worker-node/loader/cache-decisions.js';
import { CachePools } from '../../worker-node/cache/cache-pools.js';
import { entriesOf, NO_CAPACITIES, perPool } from '../../shared/decisions/caching/pool-capacities.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import { PARTS, perPart } from '../../shared/model/expert-parts.js';

const EXPERTS = 6;
const LAYERS = 2;
const ALL_LOADED = { loaded: true, cached: perPart(() => true) };

function poolsOf(capacities: PoolCapacities, policy: ExpertPolicy = 'planned', toleranceMargin = 0): CachePools {
  const pools = new CachePools({
    policy,
    experts: EXPERTS,
    entries: entriesOf(capacities),
    toleranceMargin,
    random: () => 0,
  });
  pools.setCapacities(new Map([[0, capacities]]));
  return pools;
}

function useOnce(pools: CachePools, expert: number, layer = 0): CompressionState {
  pools.activated(layer, expert, 1);
  const [use] = pools.acquire(layer, [expert]);
  assert.ok(use !== undefined);
  if (use.state !== 'full') pools.loaded(use, ALL_LOADED);
  pools.endUse(use);
  return use.state;
}

function states(pools: CachePools, layer = 0): CompressionState[] {
  return Array.from({ length: EXPERTS }, (_, expert) => pools.stateOf(layer, expert));
}

describe('cache pools', () => {
  it('store experts by rank: the most frequent whole, then compressed, signs and mantissas, exponents', () => {
    const pools = poolsOf(perPool(() => 1));
    pools.seedCounts(0, [60, 50, 40, 30, 20, 10]);
    for (let round = 0; round < 3; round += 1) for (let expert = 5; expert >= 0; expert -= 1) useOnce(pools, expert);
    assert.deepEqual(states(pools), ['full', 'compressed', 'signMantissa', 'exponent', 'missing', 'missing']);
  });

  it('report which parts are in entries, and give entries to experts to cache', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, signMantissa: 1 });
    const [first] = pools.acquire(0, [3]);
    assert.ok(first !== undefined);
    assert.equal(first.state, 'missing');
    assert.equal(first.fullEntry, null);
    assert.deepEqual(first.parts.exponent, { from: 'storage', entry: -1 });
    assert.deepEqual(first.parts.signMantissa, { from: 'storage', entry: 0 });
    pools.loaded(first, ALL_LOADED);
    pools.endUse(first);
    const [second] = pools.acquire(0, [3]);
    assert.deepEqual(second?.parts.signMantissa, { from: 'entry', entry: 0 });
    assert.equal(second.state, 'signMantissa');
  });

  it('demote the overflow of C to S, and drop the overflow of S', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, compressed: 1, signMantissa: 1 });
    useOnce(pools, 0);
    for (let use = 0; use < 2; use += 1) useOnce(pools, 1);
    assert.deepEqual(states(pools).slice(0, 2), ['signMantissa', 'compressed']);
    for (let use = 0; use < 3; use += 1) useOnce(pools, 2);
    assert.deepEqual(states(pools).slice(0, 3), ['missing', 'signMantissa', 'compressed']);
  });

  it('move an expert up when it becomes more frequent, and give its entries to others', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, full: 1, compressed: 1 });
    useOnce(pools, 0);
    useOnce(pools, 1);
    assert.deepEqual(states(pools).slice(0, 2), ['full', 'compressed']);
    useOnce(pools, 1);
    assert.deepEqual(states(pools).slice(0, 2), ['missing', 'full']);
    useOnce(pools, 2);
    assert.equal(pools.stateOf(0, 2), 'compressed');
  });

  it('store an expert beyond all rank thresholds only where there is room left', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, full: 2 });
    pools.seedCounts(0, [9, 8, 7, 1, 1, 1]);
    useOnce(pools, 5);
    useOnce(pools, 2);
    assert.deepEqual(states(pools), ['missing', 'missing', 'full', 'missing', 'missing', 'full']);
    useOnce(pools, 0);
    useOnce(pools, 4);
    assert.deepEqual(states(pools), ['full', 'missing', 'full', 'missing', 'missing', 'missing']);
  });

  it('store an expert in a pool when its rank is within the tolerance margin', () => {
    for (const [toleranceMargin, kept] of [
      [0, 'missing'],
      [1, 'full'],
    ] as const) {
      const pools = poolsOf({ ...NO_CAPACITIES, full: 1 }, 'planned', toleranceMargin);
      pools.seedCounts(0, [20, 8, 1, 1, 1, 1]);
      useOnce(pools, 5);
      useOnce(pools, 1);
      assert.equal(pools.stateOf(0, 1), kept);
    }
  });

  it('never evict an expert in use', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, full: 1 });
    const [first] = pools.acquire(0, [0]);
    assert.ok(first !== undefined);
    pools.loaded(first, ALL_LOADED);
    pools.activated(0, 1, 10);
    const [second] = pools.acquire(0, [1]);
    assert.equal(second?.fullEntry, null);
    assert.equal(pools.stateOf(0, 0), 'full');
  });

  it('do not evict experts that are needed together for one another', () => {
    for (const policy of EXPERT_POLICIES) {
      const pools = poolsOf({ ...NO_CAPACITIES, full: 2 }, policy);
      useOnce(pools, 0);
      useOnce(pools, 1);
      pools.activated(0, 2, 5);
      pools.activated(0, 3, 5);
      const together = pools.acquire(0, [2, 0, 3]);
      assert.equal(together[1]?.state, 'full', policy);
    }
  });

  it('make a second use of a loading expert wait for that load', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, full: 1 });
    const [first, second] = pools.acquire(0, [4, 4]);
    assert.ok(first !== undefined && second !== undefined);
    assert.deepEqual([first.state, second.state], ['missing', 'full']);
    assert.equal(second.fullEntry, first.fullEntry);
    assert.equal(pools.readiness(second), 'loading');
    pools.loaded(first, ALL_LOADED);
    assert.equal(pools.readiness(second), 'ready');
  });

  it('inform a use whose load another one cancelled', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, full: 1 });
    const [first, second] = pools.acquire(0, [4, 4]);
    assert.ok(first !== undefined && second !== undefined);
    pools.loaded(first, { loaded: false, cached: perPart(() => false) });
    assert.equal(pools.readiness(second), 'lost');
    pools.endUse(second);
    pools.endUse(first);
    assert.deepEqual(pools.cached(), []);
    assert.equal(useOnce(pools, 4), 'missing');
    assert.equal(pools.stateOf(0, 4), 'full');
  });

  it('keep the parts that a cancelled load completed', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, compressed: 1 });
    const [use] = pools.acquire(0, [2]);
    assert.ok(use !== undefined);
    pools.loaded(use, { loaded: false, cached: { exponent: true, signMantissa: false } });
    pools.endUse(use);
    assert.equal(pools.stateOf(0, 2), 'exponent');
    const [again] = pools.acquire(0, [2]);
    assert.deepEqual(again?.parts.exponent.from, 'entry');
    assert.deepEqual(again.parts.signMantissa, { from: 'storage', entry: 0 });
  });

  it('drop the excess over new capacities, experts in use after their release', () => {
    const capacities = { ...NO_CAPACITIES, full: 2 };
    const pools = poolsOf(capacities);
    useOnce(pools, 0);
    const [busy] = pools.acquire(0, [1]);
    assert.ok(busy !== undefined);
    pools.loaded(busy, ALL_LOADED);
    pools.setCapacities(new Map([[1, capacities]]));
    assert.deepEqual(states(pools).slice(0, 2), ['missing', 'full']);
    pools.endUse(busy);
    assert.equal(pools.stateOf(0, 1), 'missing');
    useOnce(pools, 0, 1);
    useOnce(pools, 1, 1);
    assert.deepEqual(states(pools, 1).slice(0, 2), ['full', 'full']);
  });

  it('evict an idle expert before one in use, even if the idle one has the higher count', () => {
    const two = { ...NO_CAPACITIES, full: 2 };
    const pools = poolsOf(two);
    for (let round = 0; round < 3; round += 1) useOnce(pools, 0);
    const [busy] = pools.acquire(0, [1]);
    assert.ok(busy !== undefined);
    pools.loaded(busy, ALL_LOADED);
    pools.setCapacities(new Map([[0, { ...two, full: 1 }]]));
    assert.deepEqual(states(pools).slice(0, 2), ['missing', 'full']);
    pools.endUse(busy);
    assert.equal(pools.stateOf(0, 1), 'full', 'it has its place when nobody uses it any more');
  });

  it('refuse calls out of order and experts that do not fit', () => {
    const pools = poolsOf({ ...NO_CAPACITIES, full: 1 });
    const [use] = pools.acquire(0, [0]);
    assert.ok(use !== undefined);
    assert.throws(() => pools.endUse(use), /it is loading, expected loaded/);
    pools.loaded(use, ALL_LOADED);
    assert.throws(() => pools.loaded(use, ALL_LOADED), /it is loaded, expected loading/);
    pools.endUse(use);
    assert.throws(() => pools.endUse(use), /it is released/);
    const two = { ...NO_CAPACITIES, full: 2 };
    assert.throws(() => pools.setCapacities(new Map([[0, two]])), /2 full entries, there are 1/);
  });
});

describe('cache policies for comparison:', () => {
  const room = { ...NO_CAPACITIES, full: 2 };

  it('LRU drops the one not used for longest', () => {
    const pools = poolsOf(room, 'lru');
    for (const expert of [0, 1, 0, 2]) useOnce(pools, expert);
    assert.deepEqual(states(pools).slice(0, 3), ['full', 'missing', 'full']);
  });

  it('FIFO drops the one that came first', () => {
    const pools = poolsOf(room, 'fifo');
    for (const expert of [0, 1, 0, 2]) useOnce(pools, expert);
    assert.deepEqual(states(pools).slice(0, 3), ['missing', 'full', 'full']);
  });

  it('Marking drops one that was not used in the phase', () => {
    const pools = poolsOf(room, 'marking');
    for (const expert of [0, 1, 2, 2, 3]) useOnce(pools, expert);
    // 2 began a phase and took 0's place; 1 is unmarked and makes room for 3.
    assert.deepEqual(states(pools).slice(0, 4), ['missing', 'missing', 'full', 'full']);
  });

  it('popularity keeps those that were used most before, whatever is used later', () => {
    const pools = poolsOf(room, 'popularity');
    pools.seedCounts(1, [1, 5, 0, 5]);
    pools.setCapacities(new Map([[1, room]]));
    for (const expert of [0, 2, 2, 2, 1, 0, 2, 3]) {
      pools.activated(1, expert, 4);
      useOnce(pools, expert, 1);
    }
    const kept = pools.cached().map(({ expert }) => expert);
    assert.deepEqual([kept, pools.counters.evictions], [[1, 3], 0]);
  });
});

/** The test's model of the memory behind the entries: the expert whose bytes each entry has. */
class Memory {
  readonly content = new Map<string, string>();
  readonly writing = new Map<string, CacheUse>();
  readonly reading = new Map<CacheUse, string[]>();

  begin(use: CacheUse): void {
    const reads: string[] = [];
    const writes: string[] = [];
    if (use.fullEntry !== null) (use.state === 'full' ? reads : writes).push(`full ${use.fullEntry}`);
    if (use.state !== 'full') {
      for (const part of PARTS) {
        const { from, entry } = use.parts[part];
        if (entry >= 0) (from === 'entry' ? reads : writes).push(`${part} ${entry}`);
      }
    }
    for (const entry of writes) {
      assert.ok(!this.writing.has(entry), `two loads write ${entry}`);
      for (const others of this.reading.values()) assert.ok(!others.includes(entry), `${entry} is overwritten in use`);
      this.content.delete(entry);
      this.writing.set(entry, use);
    }
    for (const entry of reads) {
      if (this.writing.has(entry)) assert.equal(use.state, 'full', `${entry} is read before it is complete`);
      else assert.equal(this.content.get(entry), `${use.layer} ${use.expert}`, `${entry} holds another expert`);
    }
    this.reading.set(use, [...reads, ...writes.filter((entry) => entry.startsWith('full'))]);
  }

  settle(use: CacheUse, outcome: UseLoaded): void {
    const kept = { full: outcome.loaded, ...outcome.cached };
    for (const [entry, writer] of this.writing) {
      if (writer !== use) continue;
      this.writing.delete(entry);
      const kind = entry.split(' ')[0] as keyof typeof kept;
      if (kept[kind]) this.content.set(entry, `${use.layer} ${use.expert}`);
      else this.lose(entry);
    }
    const reads = this.reading.get(use) ?? [];
    this.reading.set(use, outcome.loaded ? reads.filter((entry) => entry.startsWith('full')) : []);
  }

  /** Uses that waited for the entry learn that it is lost, and execute nothing. */
  lose(entry: string): void {
    for (const [use, reads] of this.reading)
      this.reading.set(
        use,
        reads.filter((read) => read !== entry),
      );
  }

  end(use: CacheUse): void {
    this.reading.delete(use);
  }
}

const capacitiesArbitrary = fc.record(perPool(() => fc.nat(2)));
const steps = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant('acquire' as const),
      layer: fc.nat(LAYERS - 1),
      experts: fc.array(fc.nat(EXPERTS - 1), { minLength: 1, maxLength: 3 }),
      activate: fc.boolean(),
    }),
    fc.record({
      kind: fc.constant('load' as const),
      which: fc.nat(20),
      outcome: fc.record({ loaded: fc.boolean(), cached: fc.record(perPart(() => fc.boolean())) }),
    }),
    fc.record({ kind: fc.constant('release' as const), which: fc.nat(20) }),
    fc.record({ kind: fc.constant('capacities' as const), swap: fc.boolean() }),
  ),
  { maxLength: 120 },
);

describe('cache pools under any interleaving', () => {
  it('never exceed a capacity, evict an expert in use, or give out an entry twice', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...EXPERT_POLICIES),
        capacitiesArbitrary,
        fc.nat(3),
        steps,
        fc.infiniteStream(fc.double({ min: 0, max: 0.999 })),
        (policy, capacities, toleranceMargin, events, draws) => {
          const entries = entriesOf(capacities);
          const random = (): number => draws.next().value as number;
          const pools = new CachePools({ policy, experts: EXPERTS, entries, toleranceMargin, random });
          let caps = new Map([[0, capacities]]);
          pools.setCapacities(caps);
          const memory = new Memory();
          const loading: CacheUse[] = [];
          const held: CacheUse[] = [];
          for (const event of events) {
            if (event.kind === 'acquire') {
              if (event.activate) for (const expert of event.experts) pools.activated(event.layer, expert, 1);
              const before = event.experts.map((expert) => pools.stateOf(event.layer, expert));
              for (const [index, use] of pools.acquire(event.layer, event.experts).entries()) {
                if (before[index] === 'full') assert.equal(use.state, 'full');
                memory.begin(use);
                (use.state === 'full' ? held : loading).push(use);
              }
            } else if (event.kind === 'load') {
              const [use] = loading.splice(event.which % Math.max(1, loading.length), 1);
              if (use === undefined) continue;
              memory.settle(use, event.outcome);
              pools.loaded(use, event.outcome);
              held.push(use);
            } else if (event.kind === 'release') {
              const [use] = held.splice(event.which % Math.max(1, held.length), 1);
              if (use === undefined) continue;
              memory.end(use);
              pools.endUse(use);
            } else {
              caps = new Map([[event.swap ? 1 : 0, capacities]]);
              pools.setCapacities(caps);
            }
            checkPools(pools, caps, held, entries);
          }
          for (const use of loading) pools.loaded(use, ALL_LOADED);
          for (const use of [...loading, ...held]) pools.endUse(use);
          pools.setCapacities(new Map());
          assert.deepEqual(pools.cached(), []);
          assertAllEntriesFree(pools, policy, capacities);
        },
      ),
      { numRuns: 400 },
    );
  });
});

function checkPools(
  pools: CachePools,
  capacities: ReadonlyMap<number, PoolCapacities>,
  held: readonly CacheUse[],
  entries: { full: number },
): void {
  const occupied = new Map<string, number>();
  for (const { layer, pool } of pools.cached()) {
    const key = `${layer} ${pool}`;
    occupied.set(key, (occupied.get(key) ?? 0) + 1);
    assert.ok((occupied.get(key) ?? 0) <= (capacities.get(layer)?.[pool] ?? 0), `${key} exceeds its capacity`);
  }
  const ready = held.filter((use) => use.fullEntry !== null && pools.readiness(use) === 'ready');
  for (const use of ready) assert.equal(pools.stateOf(use.layer, use.expert), 'full');
  const whole = new Map(ready.map((use) => [use.fullEntry, `${use.layer} ${use.expert}`]));
  for (const use of ready) assert.equal(whole.get(use.fullEntry), `${use.layer} ${use.expert}`);
  assert.ok(whole.size <= entries.full);
}

/** After everything was dropped, every pool can be filled to its capacity again. */
function assertAllEntriesFree(pools: CachePools, policy: ExpertPolicy, capacities: PoolCapacities): void {
  const layer = LAYERS;
  pools.setCapacities(new Map([[layer, capacities]]));
  pools.seedCounts(
    layer,
    Array.from({ length: EXPERTS }, (_, expert) => EXPERTS - expert),
  );
  for (let expert = 0; expert < EXPERTS; expert += 1) useOnce(pools, expert, layer);
  const usable = poolsOfPolicy(policy).reduce((sum, pool) => sum + capacities[pool], 0);
  const fitting = Math.min(EXPERTS, usable);
  assert.equal(pools.cached().length, fitting);
}
