import assert from 'node:assert/strict';
import fc from 'fast-check';
import { CachePools } from '../../worker-node/cache/cache-pools.js';
import { NO_CAPACITIES, perEntryKind } from '../../shared/decisions/caching/pool-capacities.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { SlotAction } from '../../worker-node/loader/slot-events.js';
import { SlotSchedule } from '../../worker-node/loader/slot-schedule.js';
import { perPart } from '../../shared/model/expert-parts.js';

const WORKING = 2;
const KEPT = 3;
const EXPERTS = 6;

/** A schedule whose loads and executions end when the test says so. */
class Worker {
  readonly schedule: SlotSchedule;
  readonly loading = new Set<number>();
  readonly running: { slot: number; ticket: number }[] = [];
  readonly withoutMemory = new Set<number>();
  asked = 0;
  readonly answered: number[] = [];

  constructor(kept = KEPT) {
    const entries = { ...perEntryKind(() => 0), full: kept };
    const decisions = new CachePools({ policy: 'lru', experts: EXPERTS, entries, toleranceMargin: 1, random: () => 0 });
    decisions.setCapacities(new Map([[0, { ...NO_CAPACITIES, full: kept }]]));
    this.schedule = new SlotSchedule(WORKING, { slots: kept, decisions });
  }

  execute(expert: number): void {
    const ticket = ++this.asked;
    const { pass, rows } = passOfSequence(1, ticket, 1);
    this.take(this.schedule.handle({ kind: 'execute', ticket, pass, rows, layer: 0, expert, last: true }));
  }

  /** Announces the expert for a row that has not come yet. */
  announce(expert: number): void {
    const { pass, rows } = passOfSequence(1, this.asked + 1, 1);
    this.take(this.schedule.handle({ kind: 'predict', source: 'main', pass, rows, layer: 0, experts: [expert] }));
  }

  give(slots: number): void {
    this.take(this.schedule.handle({ kind: 'memoryWanted', slots }));
  }

  spare(slots: number): void {
    this.take(this.schedule.handle({ kind: 'memoryWanted', slots, spareOnly: true }));
  }

  takeBack(): void {
    const [slot] = this.schedule.room.absent;
    if (slot === undefined) return;
    assert.ok(this.withoutMemory.delete(slot));
    this.take(this.schedule.handle({ kind: 'memoryTaken', slot }));
  }

  /** Ends all that is under way, and what that begins. */
  settle(): void {
    const { schedule } = this;
    while (this.loading.size + this.running.length > 0 || schedule.wantsDecisionWaitEnd) {
      for (const slot of [...this.loading]) {
        this.loading.delete(slot);
        this.take(
          this.schedule.handle({
            kind: 'loadSettled',
            slot,
            outcome: 'loaded',
            cached: perPart(() => false),
          }),
        );
      }
      for (const { slot, ticket } of this.running.splice(0)) {
        this.answered.push(ticket);
        this.take(this.schedule.handle({ kind: 'executeSettled', slot }));
      }
      if (schedule.wantsTurnEnd) this.take(schedule.handle({ kind: 'turnEnded' }));
      else if (schedule.wantsDecisionWaitEnd) this.take(schedule.handle({ kind: 'decisionWaitEnded' }));
    }
  }

  private take(actions: readonly SlotAction[]): void {
    for (const action of actions) {
      assert.ok(!('slot' in action && this.withoutMemory.has(action.slot)), `${action.kind} in a slot without memory`);
      if (action.kind === 'load') this.loading.add(action.slot);
      if (action.kind === 'execute') this.running.push(action);
      if (action.kind === 'letGo') {
        assert.ok(!this.loading.has(action.slot) && !this.running.some(({ slot }) => slot === action.slot));
        this.withoutMemory.add(action.slot);
      }
    }
  }
}

describe('worker: slot memory for other uses', () => {
  it('comes from cached experts first, then from working slots but the last', () => {
    const worker = new Worker();
    for (let expert = 0; expert < KEPT; expert += 1) worker.execute(expert);
    worker.settle();
    worker.give(1);
    assert.equal(worker.schedule.room.absent[0], WORKING, 'the slot of the expert that was used first');
    worker.give(WORKING + KEPT);
    assert.equal(worker.withoutMemory.size, WORKING + KEPT - 1);
    assert.equal(worker.schedule.room.spare, 0);
    assert.equal(worker.schedule.slotsInUse, 0);
    worker.execute(4);
    worker.settle();
    assert.equal(worker.answered.length, KEPT + 1);
  });

  it('comes from predicted experts, but not while they load', () => {
    const worker = new Worker();
    for (let expert = 0; expert < WORKING + KEPT; expert += 1) worker.announce(expert);
    worker.give(WORKING + KEPT);
    assert.equal(worker.withoutMemory.size, 0);
    worker.settle();
    worker.give(WORKING + KEPT);
    assert.equal(worker.schedule.room.spare, 0);
    worker.execute(0);
    worker.settle();
    assert.equal(worker.answered.length, 1);
  });

  it('is taken from empty slots of the cache, and comes back as far as planned', () => {
    const worker = new Worker();
    worker.execute(0);
    worker.settle();
    const { room } = worker.schedule;
    worker.spare(KEPT);
    assert.equal(worker.withoutMemory.size, KEPT - 1, 'the kept expert and the working slots stay');
    assert.equal(room.cachePresent, 1);
    assert.deepEqual(room.returning(1), []);
    assert.equal(room.returning(2).length, 1);
    assert.equal(room.returning(KEPT + 1).length, KEPT - 1);
    worker.give(1);
    worker.give(1);
    assert.equal(room.cachePresent, 0);
    assert.deepEqual(
      room.returning(0).map((slot) => slot < WORKING),
      [true],
      'working slots come back whatever is planned',
    );
  });

  it('is used again once it is back', () => {
    const worker = new Worker();
    worker.give(WORKING + KEPT);
    for (let slot = 0; slot < WORKING + KEPT; slot += 1) worker.takeBack();
    assert.deepEqual(worker.schedule.room.absent, []);
    for (const expert of [0, 1, 2, 0, 1, 2]) {
      worker.execute(expert);
      worker.settle();
    }
    assert.equal(worker.schedule.counters.uses.full, KEPT);
  });

  it('can go and come at any time, and no execute is lost or runs without memory', () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constantFrom('execute' as const, 'announce' as const), of: fc.nat(EXPERTS - 1) }),
      fc.record({ kind: fc.constantFrom('settle' as const, 'takeBack' as const), of: fc.constant(0) }),
      fc.record({ kind: fc.constant('give' as const), of: fc.integer({ min: 1, max: WORKING + KEPT }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), fc.nat(KEPT), (steps, kept) => {
        const worker = new Worker(kept);
        for (const { kind, of } of steps) {
          if (kind === 'execute') worker.execute(of);
          else if (kind === 'announce') worker.announce(of);
          else if (kind === 'give') worker.give(of);
          else if (kind === 'takeBack') worker.takeBack();
          else worker.settle();
        }
        worker.settle();
        assert.equal(new Set(worker.answered).size, worker.asked);
        assert.ok(worker.withoutMemory.size < WORKING + kept);
        assert.deepEqual(
          worker.schedule.room.absent,
          [...worker.withoutMemory].sort((left, right) => left - right),
        );
        // Nothing is asked for or under way: all can go but the last.
        worker.give(WORKING + kept);
        assert.equal(worker.schedule.room.spare, 0);
      }),
    );
  });
});
