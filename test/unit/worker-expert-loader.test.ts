import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/errors/index.js';
import { ExpertLoader, type ExpertSupply } from '../../worker-node/loader/expert-loader.js';
import type { SlotLoad } from '../../worker-node/loader/slot-events.js';
import { TestLog } from '../integration/harness/test-log.js';
import { TestSlots, settle, silentLog, testSource } from './worker-test-slots.js';

const STORAGE = { from: 'storage', entry: -1 } as const;
const loadOf = (slot: number, expert: number): SlotLoad => ({
  ...{ slot, layer: 2, expert, exponents: STORAGE, signMantissa: STORAGE, urgent: false },
});

/** Experts that come when the test says so. */
class TestSupply implements ExpertSupply {
  readonly waiting: { resolve: () => void; reject: (error: Error) => void; signal: AbortSignal }[] = [];

  awaitExpert(_layer: number, _expert: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject, signal });
      signal.addEventListener('abort', () => reject(new OdmoeError('CANCELLED', 'not wanted any more')));
    });
  }
}

describe('worker: the expert loader', () => {
  it('logs an expert that cannot be loaded once, and again after it could be', async () => {
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

  it('puts what main waits for in order, and goes before all else with it', async () => {
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

  it('asks for an expert that comes late as main wants it by then', async () => {
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
      exponentsKept: false,
      signMantissaKept: false,
      error: null,
    });
    await slots.endLoad(0);
    assert.equal((await first).outcome, 'loaded');
    assert.deepEqual(slots.calls, ['load 0 204']);
  });

  it('says why an expert does not come', async () => {
    const supply = new TestSupply();
    const loader = new ExpertLoader(new TestSlots(1), testSource, 1, silentLog, supply);
    const load = loader.load(loadOf(0, 4));
    supply.waiting[0]?.reject(new OdmoeError('STORAGE_FULL', 'no room on the disk'));
    const { outcome, error } = await load;
    assert.deepEqual([outcome, error?.code], ['failed', 'STORAGE_FULL']);
  });
});
