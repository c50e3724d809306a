/** The slot schedule with sliced experts: upper slices come first, and lower ones where they are read. */
import assert from 'node:assert/strict';
import { perPart } from '../../shared/model/expert-parts.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { LoadEnd, SlotAction } from '../../worker-node/loader/slot-events.js';
import { type ExpertLoads, SlotSchedule } from '../../worker-node/loader/slot-schedule.js';

const AT = passOfSequence(1, 5, 1);
const STORED = { from: 'storage', entry: -1 } as const;
const LEFT_OUT = { from: 'notWanted', entry: -1 } as const;
const load = (part: 'upper' | 'lower', layer: number, expert: number, urgent = false, slot = 0): SlotAction => ({
  kind: 'load',
  slot,
  layer,
  expert,
  urgent,
  parts: part === 'upper' ? { exponent: STORED, signMantissa: LEFT_OUT } : { exponent: LEFT_OUT, signMantissa: STORED },
});
const start = (ticket: number, wasLoaded: boolean, slot = 0): SlotAction => ({
  kind: 'execute',
  slot,
  ticket,
  wasLoaded,
});
const PRIORITIZE: SlotAction = { kind: 'prioritize', slot: 0 };
const EVICT: SlotAction = { kind: 'evict', slot: 0 };

class Sliced {
  readonly schedule: SlotSchedule;
  private ticket = 0;

  constructor(slots = 1, loads: ExpertLoads = 'slices') {
    this.schedule = new SlotSchedule(slots, null, loads);
  }

  predict(
    layer: number,
    experts: number[],
    critical: number[] = [],
    source: 'main' | 'shadow' = 'shadow',
  ): SlotAction[] {
    return this.schedule.handle({ kind: 'predict', source, ...AT, layer, experts, critical });
  }

  execute(
    layer: number,
    expert: number,
    reads: 'upper' | 'both',
    last = true,
  ): [ticket: number, actions: SlotAction[]] {
    const ticket = ++this.ticket;
    const readsLower = reads === 'both';
    return [ticket, this.schedule.handle({ kind: 'execute', ticket, ...AT, layer, expert, last, readsLower })];
  }

  settled(outcome: LoadEnd['outcome'] = 'loaded', slot = 0): SlotAction[] {
    return this.schedule.handle({ kind: 'loadSettled', slot, outcome, cached: perPart(() => false) });
  }

  ran(slot = 0): SlotAction[] {
    return this.schedule.handle({ kind: 'executeSettled', slot });
  }
}

describe('worker: the slot schedule with sliced experts', () => {
  it('loads upper slices alone for an expert of which nobody expects more', () => {
    const sliced = new Sliced();
    assert.deepEqual(sliced.predict(0, [3]), [load('upper', 0, 3)]);
    assert.deepEqual(sliced.settled(), []);
    const [ticket, actions] = sliced.execute(0, 3, 'upper');
    assert.deepEqual(actions, [start(ticket, true)]);
    assert.deepEqual(sliced.ran(), [EVICT]);
  });

  it('counts a load that is waited for by the slices that it reads', () => {
    const sliced = new Sliced();
    const [reader] = sliced.execute(0, 3, 'both');
    const tickets = [reader];
    assert.deepEqual(sliced.schedule.waitedLoads, [{ slot: 0, state: 'signMantissa', tickets }], 'the upper ones');
    sliced.settled();
    assert.deepEqual(sliced.schedule.waitedLoads, [{ slot: 0, state: 'exponent', tickets }], 'the lower ones');
    const whole = new Sliced(1, 'whole');
    whole.execute(0, 3, 'both');
    assert.deepEqual(whole.schedule.waitedLoads, [{ slot: 0, state: 'missing', tickets }], 'both');
  });

  it('loads the lower slices of a critical expert behind its upper ones, before anybody asks for them', () => {
    const sliced = new Sliced();
    assert.deepEqual(sliced.predict(0, [3], [3]), [load('upper', 0, 3)]);
    assert.deepEqual(sliced.settled(), [load('lower', 0, 3)]);
    assert.deepEqual(sliced.settled(), []);
    const [ticket, actions] = sliced.execute(0, 3, 'both');
    assert.deepEqual(actions, [start(ticket, true)]);
  });

  it('takes up that an expert is critical when its upper slices are in the slot already', () => {
    const sliced = new Sliced();
    sliced.predict(0, [3]);
    sliced.settled();
    assert.deepEqual(sliced.predict(0, [3], [3], 'main'), [load('lower', 0, 3)]);
  });

  it('adds the lower slices for an execute that reads them, and meanwhile runs those that read the upper ones', () => {
    const sliced = new Sliced();
    sliced.predict(0, [3]);
    sliced.settled();
    const [reader, added] = sliced.execute(0, 3, 'both', false);
    assert.deepEqual(added, [load('lower', 0, 3, true)]);
    const [other, run] = sliced.execute(0, 3, 'upper');
    assert.deepEqual(run, [start(other, true)]);
    assert.deepEqual(sliced.ran(), []);
    assert.deepEqual(sliced.schedule.waitedLoads, [{ slot: 0, state: 'exponent', tickets: [reader] }]);
    assert.deepEqual(sliced.settled(), [start(reader, false)]);
    assert.deepEqual(sliced.ran(), [EVICT]);
  });

  it('runs those that read the upper slices as soon as these have come, before the lower ones', () => {
    const sliced = new Sliced();
    const [reader] = sliced.execute(0, 3, 'both', false);
    const [other] = sliced.execute(0, 3, 'upper');
    assert.deepEqual(sliced.settled(), [start(other, false), load('lower', 0, 3, true)]);
    assert.deepEqual(sliced.settled(), [start(reader, false)]);
  });

  it('makes a load of lower slices urgent when the first execute waits for it', () => {
    const sliced = new Sliced();
    sliced.predict(0, [3], [3]);
    sliced.settled();
    const [, upper] = sliced.execute(0, 3, 'upper', false);
    assert.deepEqual(
      upper.filter(({ kind }) => kind === 'prioritize'),
      [],
    );
    const [, both] = sliced.execute(0, 3, 'both');
    assert.deepEqual(both, [PRIORITIZE]);
  });

  it('fails the executes that wait for lower slices which cannot be loaded, and none else', () => {
    const sliced = new Sliced();
    sliced.predict(0, [3], [3]);
    sliced.settled();
    const [reader] = sliced.execute(0, 3, 'both', false);
    assert.deepEqual(sliced.settled('failed'), [{ kind: 'fail', slot: 0, ticket: reader }]);
    const [other, run] = sliced.execute(0, 3, 'upper', false);
    assert.deepEqual(run, [start(other, true)], 'the upper slices stay');
    const [again, retry] = sliced.execute(0, 3, 'both');
    assert.deepEqual(retry, [load('lower', 0, 3, true)], 'the next one tries again');
    assert.deepEqual(sliced.settled(), [start(again, false)]);
  });

  it('does not try again and again to load lower slices that are only expected', () => {
    const sliced = new Sliced();
    sliced.predict(0, [3], [3]);
    sliced.settled();
    assert.deepEqual(sliced.settled('failed'), []);
  });

  it('loads no lower slices for an expectation whose last execute has come', () => {
    const sliced = new Sliced();
    sliced.predict(0, [3], [3]);
    const [ticket] = sliced.execute(0, 3, 'upper');
    assert.deepEqual(sliced.settled(), [start(ticket, false)]);
    assert.deepEqual(sliced.ran(), [EVICT]);
  });

  for (const outcome of ['cancelled', 'loaded', 'failed'] as const) {
    it(`cancels the load of lower slices of an expert that main released, and uses the slot after it (${outcome})`, () => {
      const sliced = new Sliced();
      sliced.predict(0, [3], [3]);
      sliced.settled();
      const [ticket] = sliced.execute(0, 7, 'upper');
      const released = sliced.schedule.handle({ kind: 'release', ...AT, layer: 0, experts: [3] });
      assert.deepEqual(released, [{ kind: 'cancelLoad', slot: 0 }]);
      assert.deepEqual(sliced.settled(outcome), [EVICT, load('upper', 0, 7, true)]);
      assert.deepEqual(sliced.settled(), [start(ticket, false)]);
    });
  }

  it('gives memory back from no slot whose lower slices load', () => {
    const sliced = new Sliced(3);
    // It is needed last, and would be the first to go.
    sliced.predict(9, [3], [3]);
    sliced.settled();
    sliced.predict(1, [4]);
    sliced.settled('loaded', 1);
    sliced.predict(2, [5]);
    sliced.settled('loaded', 2);
    assert.deepEqual(sliced.schedule.handle({ kind: 'memoryWanted', slots: 3 }), [
      { kind: 'evict', slot: 2 },
      { kind: 'letGo', slot: 2 },
      { kind: 'evict', slot: 1 },
      { kind: 'letGo', slot: 1 },
    ]);
  });
});
