import type { PoolCapacities, ExpertPolicy } from '../../shared/settings/cache-policies.js';
import assert from 'node:assert/strict';
import { CachePools } from '../../worker-node/cache/cache-pools.js';
import { entriesOf, NO_CAPACITIES, perEntryKind } from '../../shared/decisions/caching/pool-capacities.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { LoadEnd, SlotAction } from '../../worker-node/loader/slot-events.js';
import { SlotSchedule } from '../../worker-node/loader/slot-schedule.js';
import { PARTS, perPart } from '../../shared/model/expert-parts.js';
import { perState } from '../../shared/decisions/caching/load-times.js';

/** A schedule with one working slot and pools in layers 0 and 1, and the events of one sequence at position 5. */
class CachedSchedule {
  readonly schedule: SlotSchedule;
  private ticket = 0;

  constructor(capacities: Partial<PoolCapacities>, policy: ExpertPolicy = 'lru', workingSlots = 1) {
    const each = { ...NO_CAPACITIES, ...capacities };
    const ofLayer = entriesOf(each);
    const entries = perEntryKind((kind) => 2 * ofLayer[kind]);
    const decisions = new CachePools({ policy, experts: 8, entries, toleranceMargin: 0, random: () => 0 });
    this.schedule = new SlotSchedule(workingSlots, { slots: entries.full, decisions });
    this.share([0, 1], each);
  }

  share(layers: number[], each: PoolCapacities): SlotAction[] {
    return this.schedule.handle({
      kind: 'capacitiesChanged',
      capacities: new Map(layers.map((layer) => [layer, each])),
    });
  }

  predict(layer: number, experts: number[], sequence = 1, position = 5): SlotAction[] {
    return this.schedule.handle({
      kind: 'predict',
      source: 'shadow',
      ...passOfSequence(sequence, position, 1),
      layer,
      experts,
    });
  }

  execute(layer: number, expert: number, { sequence = 1, position = 5, last = true } = {}): SlotAction[] {
    const ticket = ++this.ticket;
    return this.schedule.handle({
      kind: 'execute',
      ticket,
      ...passOfSequence(sequence, position, 1),
      layer,
      expert,
      last,
    });
  }

  settle(slot: number, outcome: LoadEnd['outcome'] = 'loaded', kept = true): SlotAction[] {
    return this.schedule.handle({ kind: 'loadSettled', slot, outcome, cached: perPart(() => kept) });
  }

  ran(slot: number): SlotAction[] {
    return this.schedule.handle({ kind: 'executeSettled', slot });
  }

  release(layer: number, experts: number[], sequence = 1): SlotAction[] {
    return this.schedule.handle({ kind: 'release', ...passOfSequence(sequence, 5, 1), layer, experts });
  }

  /** Loads, runs and ends one use of the expert, wherever the pools put it. */
  use(layer: number, expert: number, position: number): SlotAction[] {
    const actions = this.execute(layer, expert, { position });
    for (const action of actions) {
      if (action.kind === 'load') actions.push(...this.settle(action.slot));
      if (action.kind === 'execute') actions.push(...this.ran(action.slot));
    }
    return actions;
  }
}

const kinds = (actions: SlotAction[]): string[] =>
  actions.map((action) =>
    'slot' in action ? `${action.kind} ${action.slot}` : `${action.kind} ticket ${action.ticket}`,
  );

describe('worker: the slot schedule with full experts cached', () => {
  it('keeps an expert after its last mini-batch and runs it again without a load', () => {
    const cached = new CachedSchedule({ full: 1 });
    assert.deepEqual(kinds(cached.execute(0, 3)), ['load 1'], 'into a slot of the cache');
    assert.deepEqual(kinds(cached.settle(1)), ['execute 1']);
    assert.deepEqual(cached.ran(1), []);
    assert.equal(cached.schedule.slotsInUse, 0);
    assert.deepEqual(cached.execute(0, 3, { position: 6 }), [{ kind: 'execute', slot: 1, ticket: 2, wasLoaded: true }]);
    const { uses, unannouncedLoads: reloads } = cached.schedule.counters;
    assert.deepEqual(uses, { ...perState(() => 0), missing: 1, full: 1 });
    assert.equal(reloads, 1, 'what is there need not be loaded again');
  });

  it('answers a prediction for a cached expert without a load, and keeps the expert for it', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.use(0, 3, 5);
    assert.deepEqual(cached.predict(0, [3], 1, 6), []);
    assert.deepEqual(
      kinds(cached.execute(0, 4, { position: 5, sequence: 2 })),
      ['load 0'],
      'the other one is expected',
    );
    assert.deepEqual(kinds(cached.execute(0, 3, { position: 6 })), ['execute 1']);
  });

  it('evicts for another expert, and reports it', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.use(0, 3, 5);
    assert.deepEqual(kinds(cached.use(0, 4, 6)), ['evict 1', 'load 1', 'execute 1']);
  });

  it('never evicts an expert that runs: the other one takes a working slot', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.execute(0, 3);
    assert.deepEqual(kinds(cached.settle(1)), ['execute 1']);
    assert.deepEqual(kinds(cached.execute(0, 4, { sequence: 2 })), ['load 0']);
    assert.deepEqual(kinds(cached.settle(0)), ['execute 0']);
    assert.deepEqual(kinds(cached.ran(0)), ['evict 0'], 'what has no place in the cache goes at once');
  });

  it('shares one load among all that wait for the expert', () => {
    const cached = new CachedSchedule({ full: 1 });
    assert.deepEqual(kinds(cached.predict(0, [3], 1)), ['load 1']);
    assert.deepEqual(cached.predict(0, [3], 2), []);
    assert.deepEqual(kinds(cached.execute(0, 3, { sequence: 1 })), ['prioritize 1']);
    assert.deepEqual(cached.execute(0, 3, { sequence: 2 }), []);
    assert.deepEqual(kinds(cached.settle(1)), ['execute 1', 'execute 1']);
    cached.ran(1);
    cached.ran(1);
    assert.deepEqual(kinds(cached.execute(0, 3, { position: 6 })), ['execute 1']);
  });

  it('shares a load with those that had to wait for a slot, too', () => {
    const cached = new CachedSchedule({ signMantissa: 1 }, 'planned');
    cached.execute(1, 7);
    cached.predict(0, [3], 1, 6);
    cached.predict(0, [3], 2, 6);
    cached.settle(0);
    assert.deepEqual(kinds(cached.ran(0)), ['evict 0', 'load 0']);
    cached.execute(0, 3, { sequence: 2, position: 6 });
    cached.execute(0, 3, { sequence: 1, position: 6 });
    assert.deepEqual(kinds(cached.settle(0)), ['execute 0', 'execute 0']);
  });

  it('continues a shared load while one of its users wants it, and cancels it afterwards', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.predict(0, [3], 1);
    cached.predict(0, [3], 2);
    assert.deepEqual(cached.release(0, [3], 1), []);
    assert.deepEqual(kinds(cached.release(0, [3], 2)), ['cancelLoad 1']);
  });

  it('loads an expert again that was requested while its load was being cancelled', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.predict(0, [3], 1);
    cached.release(0, [3], 1);
    assert.deepEqual(cached.execute(0, 3, { sequence: 2 }), [], 'not into a second slot');
    assert.deepEqual(kinds(cached.settle(1, 'cancelled', false)), ['load 1']);
    assert.deepEqual(kinds(cached.settle(1)), ['execute 1']);
  });

  it('runs an expert that a cancelled load had completed', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.predict(0, [3], 1);
    cached.release(0, [3], 1);
    cached.execute(0, 3, { sequence: 2 });
    assert.deepEqual(kinds(cached.settle(1)), ['execute 1']);
  });

  it('fails all that wait for a failed load, and does not take its slot for a full expert', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.execute(0, 3, { sequence: 1 });
    cached.execute(0, 3, { sequence: 2 });
    assert.deepEqual(kinds(cached.settle(1, 'failed', false)), ['fail 1', 'fail 1']);
    assert.deepEqual(kinds(cached.execute(0, 3, { position: 6 })), ['load 1']);
  });

  it('drops cached experts of a layer that the worker serves no longer, running ones after their run', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.use(0, 3, 5);
    cached.execute(1, 2, { position: 5, last: false });
    cached.settle(2);
    assert.deepEqual(kinds(cached.share([2], { ...NO_CAPACITIES, full: 2 })), ['evict 1']);
    assert.deepEqual(cached.ran(2), []);
    cached.execute(1, 2, { position: 5 });
    assert.deepEqual(kinds(cached.ran(2)), ['evict 2']);
  });

  it('keeps its experts when main is lost', () => {
    const cached = new CachedSchedule({ full: 1 });
    cached.use(0, 3, 5);
    cached.execute(1, 2);
    assert.deepEqual(kinds(cached.schedule.handle({ kind: 'mainLost' })), ['cancelLoad 2']);
    cached.settle(2, 'cancelled', false);
    assert.deepEqual(kinds(cached.execute(0, 3)), ['execute 1']);
  });
});

describe('worker: the slot schedule with parts cached', () => {
  const load = (actions: SlotAction[]): unknown[] =>
    actions.flatMap((action) => (action.kind === 'load' ? [PARTS.map((part) => action.parts[part])] : []));

  for (const [pool, exponents, signMantissa] of [
    ['compressed', 0, 0],
    ['signMantissa', -1, 0],
    ['exponent', 0, -1],
  ] as const) {
    it(`keeps what the ${pool} pool holds and uses it at the next load`, () => {
      const cached = new CachedSchedule({ [pool]: 1 }, 'planned');
      assert.deepEqual(load(cached.use(0, 3, 5)), [
        [
          { from: 'storage', entry: exponents },
          { from: 'storage', entry: signMantissa },
        ],
      ]);
      assert.deepEqual(load(cached.use(0, 3, 6)), [
        [
          { from: exponents < 0 ? 'storage' : 'entry', entry: exponents },
          { from: signMantissa < 0 ? 'storage' : 'entry', entry: signMantissa },
        ],
      ]);
      assert.deepEqual({ ...cached.schedule.counters.uses, [pool]: 0 }, { ...perState(() => 0), missing: 1 });
      assert.equal(cached.schedule.counters.uses[pool], 1);
    });
  }

  it('reads the parts again that the load could not keep', () => {
    const cached = new CachedSchedule({ compressed: 1 }, 'planned');
    cached.execute(0, 3);
    cached.settle(0, 'failed', false);
    const [[exponents, signMantissa]] = load(cached.execute(0, 3, { position: 6 })) as [[object, object]];
    assert.deepEqual(
      [exponents, signMantissa],
      [
        { from: 'storage', entry: 0 },
        { from: 'storage', entry: 0 },
      ],
    );
  });
});
