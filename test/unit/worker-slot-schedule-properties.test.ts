import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { SlotAction, SlotEvent } from '../../worker-node/loader/slot-events.js';
import { SlotSchedule } from '../../worker-node/loader/slot-schedule.js';
import type { ExpertPlace } from '../../worker-node/loader/expectations.js';

/** Carries a schedule's actions out in a model of the device, and fails on the first that a device could not bear. */
class ModelDevice {
  readonly schedule: SlotSchedule;
  readonly slots: { content: string | null; phase: 'empty' | 'loading' | 'cancelling' | 'loaded'; running: number[] }[];
  readonly asked = new Map<number, ExpertPlace>();
  readonly answered = new Map<number, 'ran' | 'failed'>();
  abandoned = new Set<number>();
  #ticket = 0;
  #started: number[] = [];

  constructor(slotCount: number) {
    this.schedule = new SlotSchedule(slotCount);
    this.slots = Array.from({ length: slotCount }, () => ({ content: null, phase: 'empty', running: [] }));
  }

  execute(place: ExpertPlace, last: boolean): void {
    const ticket = ++this.#ticket;
    this.asked.set(ticket, place);
    this.send({ kind: 'execute', ticket, rows: 1, last, ...place });
  }

  send(event: SlotEvent): void {
    for (const action of this.schedule.handle(event)) this.#carryOut(action);
  }

  /** Lets one thing under way end; false when nothing is. */
  settle(choice: number, loadFails: boolean): boolean {
    const busy = [...this.slots.entries()].filter(
      ([, slot]) => slot.phase === 'loading' || slot.phase === 'cancelling' || slot.running.length > 0,
    );
    const [index, slot] = busy[choice % Math.max(1, busy.length)] ?? [];
    if (index === undefined || slot === undefined) return false;
    if (slot.running.length > 0) {
      this.answered.set(slot.running.shift() as number, 'ran');
      this.send({ kind: 'executeSettled', slot: index });
    } else if (slot.phase === 'cancelling') {
      // A load may have been through before the cancellation reached it.
      const through = choice % 2 === 0;
      slot.phase = through ? 'loaded' : 'empty';
      this.send({ kind: 'loadSettled', slot: index, outcome: through ? 'loaded' : 'cancelled' });
    } else {
      slot.phase = loadFails ? 'empty' : 'loaded';
      this.send({ kind: 'loadSettled', slot: index, outcome: loadFails ? 'failed' : 'loaded' });
    }
    return true;
  }

  endTurn(): void {
    if (this.schedule.wantsTurnEnd) this.send({ kind: 'turnEnded' });
  }

  endGrace(): void {
    if (this.schedule.wantsGraceEnd) this.send({ kind: 'graceEnded' });
  }

  drain(): void {
    for (let step = 0; step < 10_000; step++) {
      this.endTurn();
      this.endGrace();
      if (!this.settle(step, false)) return;
    }
    assert.fail('the schedule does not come to rest');
  }

  #carryOut(action: SlotAction): void {
    const slot = this.slots[action.slot];
    assert.ok(slot);
    switch (action.kind) {
      case 'load':
        assert.equal(slot.phase, 'empty', 'a load overwrites a slot');
        slot.phase = 'loading';
        slot.content = `${action.layer} ${action.expert}`;
        return;
      case 'cancelLoad':
        assert.equal(slot.phase, 'loading');
        slot.phase = 'cancelling';
        return;
      case 'evict':
        assert.equal(slot.phase, 'loaded');
        assert.deepEqual(slot.running, [], 'an expert in use is evicted');
        slot.phase = 'empty';
        return;
      case 'execute':
        return this.#start(action.ticket, slot);
      case 'fail':
        assert.equal(this.answered.has(action.ticket), false);
        this.answered.set(action.ticket, 'failed');
        return;
    }
  }

  #start(ticket: number, slot: ModelDevice['slots'][number]): void {
    const place = this.asked.get(ticket);
    assert.ok(place);
    assert.equal(slot.phase, 'loaded');
    assert.equal(slot.content, `${place.layer} ${place.expert}`, 'another expert than the one asked for runs');
    assert.ok(!this.#started.includes(ticket) && !this.abandoned.has(ticket));
    const earlier = this.#started.filter((other) => sameExpert(this.asked.get(other), place));
    assert.ok(
      earlier.every((other) => other < ticket),
      'mini-batches of an expert run out of order',
    );
    this.#started.push(ticket);
    slot.running.push(ticket);
  }

  abandon(): void {
    for (const ticket of this.asked.keys()) if (!this.#started.includes(ticket)) this.abandoned.add(ticket);
    this.send({ kind: 'mainLost' });
  }
}

const sameExpert = (left: ExpertPlace | undefined, right: ExpertPlace): boolean =>
  JSON.stringify(left) === JSON.stringify(right);

const places = fc.record({ sequence: fc.nat(2), position: fc.nat(2), layer: fc.nat(3), expert: fc.nat(3) });
const layers = fc.record({
  sequence: fc.nat(2),
  position: fc.nat(2),
  layer: fc.nat(3),
  experts: fc.uniqueArray(fc.nat(3), { maxLength: 3 }),
});
type Step = (device: ModelDevice) => void;
const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: layers.map(
      (layer): Step =>
        (device) =>
          device.send({ kind: 'predict', source: 'shadow', ...layer }),
    ),
  },
  {
    weight: 2,
    arbitrary: layers.map(
      (layer): Step =>
        (device) =>
          device.send({ kind: 'predict', source: 'main', ...layer }),
    ),
  },
  {
    weight: 5,
    arbitrary: fc.tuple(places, fc.boolean()).map(
      ([place, last]): Step =>
        (device) =>
          device.execute(place, last),
    ),
  },
  {
    weight: 2,
    arbitrary: layers.map(
      (layer): Step =>
        (device) =>
          device.send({ kind: 'release', ...layer }),
    ),
  },
  {
    weight: 8,
    arbitrary: fc.tuple(fc.nat(7), fc.boolean(), fc.boolean()).map(
      ([choice, failsOnce, failsTwice]): Step =>
        (device) =>
          void device.settle(choice, failsOnce && failsTwice),
    ),
  },
  { weight: 5, arbitrary: fc.constant<Step>((device) => device.endTurn()) },
  { weight: 2, arbitrary: fc.constant<Step>((device) => device.endGrace()) },
  { weight: 1, arbitrary: fc.constant<Step>((device) => device.send({ kind: 'epochChanged' })) },
  { weight: 1, arbitrary: fc.constant<Step>((device) => device.abandon()) },
);

describe('worker slot schedule: whatever happens in whatever order', () => {
  it('never overwrites or evicts an expert in use, runs every execute once and in order, and frees every slot', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        fc.array(steps, { maxLength: 120, size: 'max' }),
        (slotCount, script) => {
          const device = new ModelDevice(slotCount);
          for (const step of script) step(device);
          device.drain();
          for (const ticket of device.asked.keys()) {
            assert.ok(
              device.answered.has(ticket) || device.abandoned.has(ticket),
              `ticket ${ticket} is never answered`,
            );
          }
          for (const sequence of [0, 1, 2])
            device.send({ kind: 'release', sequence, position: 0, layer: 0, experts: [] });
          device.drain();
          assert.equal(device.schedule.slotsInUse, 0);
          assert.ok(device.slots.every((slot) => slot.phase === 'empty'));
        },
      ),
      { numRuns: 400 },
    );
  });

  it('holds no slot after main is lost, however much was under way', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 3 }),
        fc.array(steps, { maxLength: 60, size: 'max' }),
        (slotCount, script) => {
          const device = new ModelDevice(slotCount);
          for (const step of script) step(device);
          device.abandon();
          device.drain();
          assert.equal(device.schedule.slotsInUse, 0);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('decides the same for the same events', () => {
    const run = (slotCount: number, script: Step[]): string => {
      const device = new ModelDevice(slotCount);
      for (const step of script) step(device);
      return JSON.stringify([device.slots, [...device.answered], device.schedule.counters]);
    };
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 3 }),
        fc.array(steps, { maxLength: 60, size: 'max' }),
        (slotCount, script) => {
          assert.equal(run(slotCount, script), run(slotCount, script));
        },
      ),
      { numRuns: 50 },
    );
  });
});
