import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ExpertLoader, type ExpertSupply } from '../../worker-node/loader/expert-loader.js';
import type { SlotLoad } from '../../worker-node/loader/slot-events.js';
import { TestLog } from '../integration/harness/test-log.js';
import { TestSlots, settle, silentLog, testSource } from './worker-test-slots.js';
import { perPart } from '../../shared/model/expert-parts.js';

const STORAGE = { from: 'storage', entry: -1 } as const;
const loadOf = (slot: number, expert: number): SlotLoad => ({
  slot,
  layer: 2,
  expert,
  parts: perPart(() => STORAGE),
  urgent: false,
});

/** Experts that come when the test says so. */
class TestSupply implements ExpertSupply {
  readonly forgotten: number[] = [];
  forgetFault: Error | null = null;
  readonly find = (): null => null;
  readonly waiting: { resolve: () => void; reject: (error: Error) => void; signal: AbortSignal }[] = [];

  awaitExpert(_layer: number, _expert: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject, signal });
      signal.addEventListener('abort', () => reject(new OdmoeError('CANCELLED', 'not wanted any more')));
    });
  }

  async forget(_layer: number, expert: number): Promise<void> {
    this.forgotten.push(expert);
    if (this.forgetFault !== null) throw this.forgetFault;
  }
}

describe('worker: the expert loader', () => {
  it('logs an expert that cannot be loaded once, and again after a success', async () => {
    const slots = new TestSlots(1);
    const log = new TestLog();
    const loader = new ExpertLoader(slots, testSource, 1, log.logger('worker'));
    const load = async (expert: number, fault: Error | null): Promise<string> => {
      const result = loader.load(loadOf(0, expert));
      await slots.endLoad(0, fault);
      return (await result).outcome;
    };
    const damaged = new OdmoeError('PACK_CORRUPT', 'the checksum is wrong');
    for (let again = 0; again < 5; again++) assert.equal(await load(3, damaged), 'failed');
    assert.equal(log.matching('loading an expert failed').length, 1);
    assert.equal(await load(4, damaged), 'failed');
    assert.equal(log.matching('loading an expert failed').length, 2);
    assert.equal(await load(3, null), 'loaded');
    assert.equal(await load(3, damaged), 'failed');
    assert.equal(log.matching('loading an expert failed').length, 3);
  });

  it('orders the experts that main waits for, and loads them before all others', async () => {
    const slots = new TestSlots(3);
    const loader = new ExpertLoader(slots, testSource, 1, silentLog);
    const loads = [0, 1, 2].map((slot) => loader.load(loadOf(slot, slot)));
    loader.prioritize(2);
    loader.order([
      { slot: 0, state: 'missing', executeMs: 1 },
      { slot: 2, state: 'missing', executeMs: 5 },
    ]);
    assert.deepEqual(slots.calls.slice(3), ['prioritize 2', 'reorder 2', 'reorder 0']);
    for (const slot of [0, 1, 2]) await slots.endLoad(slot);
    await Promise.all(loads);
    loader.prioritize(1);
    assert.equal(slots.calls.length, 6, 'nothing is under way any more');
  });

  it('gives a late expert the priority that main has set by then', async () => {
    const slots = new TestSlots(2);
    const supply = new TestSupply();
    const loader = new ExpertLoader(slots, testSource, 1, silentLog, supply);
    const [first, second] = [loader.load(loadOf(0, 4)), loader.load(loadOf(1, 5))];
    loader.prioritize(0);
    loader.order([
      { slot: 0, state: 'missing', executeMs: 1 },
      { slot: 1, state: 'missing', executeMs: 5 },
    ]);
    assert.deepEqual(slots.calls, [], 'nothing to load yet');
    supply.waiting[0]?.resolve();
    await settle();
    assert.equal(slots.requests[0]?.urgent, true);
    assert.equal(slots.requests[0].order?.length, 3);
    loader.cancel(1);
    assert.deepEqual(await second, {
      outcome: 'cancelled',
      cached: perPart(() => false),
      loadMs: 0,
      error: null,
    });
    await slots.endLoad(0);
    assert.equal((await first).outcome, 'loaded');
    assert.deepEqual(slots.calls, ['load 0 204']);
  });

  describe('with a damaged expert on the disk', () => {
    const damaged = new OdmoeError('PACK_CORRUPT', 'the checksum is wrong');
    let slots: TestSlots;
    let supply: TestSupply;
    let log: TestLog;
    let loader: ExpertLoader;

    beforeEach(() => {
      slots = new TestSlots(1);
      supply = new TestSupply();
      log = new TestLog();
      loader = new ExpertLoader(slots, testSource, 1, log.logger('worker'), supply);
    });

    /** The expert comes to the disk, and its load ends with this fault. */
    async function comesAndLoads(fault: Error | null): Promise<void> {
      supply.waiting.shift()?.resolve();
      await settle();
      await slots.endLoad(0, fault);
    }

    it('fetches it again and loads it again', async () => {
      const load = loader.load(loadOf(0, 4));
      await comesAndLoads(damaged);
      assert.deepEqual(supply.forgotten, [4]);
      await comesAndLoads(null);
      assert.equal((await load).outcome, 'loaded');
      assert.equal(log.matching('damaged and is fetched again').length, 1);
      assert.equal(log.matching('loading an expert failed').length, 0);
    });

    it('fails when it is damaged again and again, or for another reason', async () => {
      const load = loader.load(loadOf(0, 4));
      for (let time = 0; time < 3; time += 1) await comesAndLoads(damaged);
      const { outcome, error } = await load;
      assert.deepEqual([outcome, error?.code], ['failed', 'PACK_CORRUPT']);
      assert.deepEqual(supply.forgotten, [4, 4]);
      const other = loader.load(loadOf(0, 5));
      await comesAndLoads(new OdmoeError('STORAGE_FAILED', 'the disk is gone'));
      assert.equal((await other).error?.code, 'STORAGE_FAILED');
      assert.deepEqual(supply.forgotten, [4, 4]);
    });

    it('fails with the damage when the expert cannot be removed', async () => {
      supply.forgetFault = new OdmoeError('STORAGE_FULL', 'no room for the journal');
      const load = loader.load(loadOf(0, 4));
      await comesAndLoads(damaged);
      assert.equal((await load).error?.code, 'PACK_CORRUPT');
      assert.equal(log.matching('cannot be fetched again').length, 1);
    });

    it('stops when the load is cancelled during the fetch', async () => {
      const load = loader.load(loadOf(0, 4));
      await comesAndLoads(damaged);
      loader.cancel(0);
      assert.equal((await load).outcome, 'cancelled');
      assert.deepEqual(slots.calls, ['load 0 204']);
    });
  });

  it('reports why an expert does not arrive', async () => {
    const supply = new TestSupply();
    const loader = new ExpertLoader(new TestSlots(1), testSource, 1, silentLog, supply);
    const load = loader.load(loadOf(0, 4));
    supply.waiting[0]?.reject(new OdmoeError('STORAGE_FULL', 'no room on the disk'));
    const { outcome, error } = await load;
    assert.deepEqual([outcome, error?.code], ['failed', 'STORAGE_FULL']);
  });
});
