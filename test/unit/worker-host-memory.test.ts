import assert from 'node:assert/strict';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { type LoadRates, PRESSURE_BYTES } from '../../worker-node/loader/host-memory-plan.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import {
  FILLS_PER_PLAN,
  HOST_MEMORY_INTERVAL_MS,
  HostMemory,
  type HostMemoryOptions,
  REFUSED_REST_MS,
} from '../../worker-node/cache/host-memory.js';
import { TestSlots, settle, silentLog, testSource } from './worker-test-slots.js';

const GIB = 1024 ** 3;
/** Bytes of an expert without chunks. */
const EXPERT_BYTES = 4096;
const LAYERS = [1, 4];

describe('experts in host memory', () => {
  let slots: TestSlots;
  let counts: ActivationCounts;
  let freeBytes: number;
  let nowMs: number;
  let tick: () => void;
  let cached: ExpertId[];
  let plannings: number;
  let rates: LoadRates | null;
  let memory: HostMemory | null;

  beforeEach(() => {
    slots = new TestSlots(1);
    counts = new ActivationCounts('0'.repeat(64), testSource.shape.experts);
    freeBytes = 16 * GIB;
    nowMs = 0;
    cached = [];
    plannings = 0;
    rates = null;
    memory = null;
  });

  afterEach(async () => {
    await memory?.close();
  });

  function open(setting: HostMemoryOptions['setting'], isHere: HostMemoryOptions['isHere'] = () => true): HostMemory {
    const runtime: Pick<Runtime, 'every' | 'freeHostMemoryBytes' | 'nowMs'> = {
      nowMs: () => nowMs,
      freeHostMemoryBytes: () => freeBytes,
      every: (intervalMs, call) => {
        assert.equal(intervalMs, HOST_MEMORY_INTERVAL_MS);
        tick = call;
        return { cancel: () => undefined, unref: () => undefined };
      },
    };
    const numberOf = (layer: number, expert: number): number => layer * 100 + expert;
    const cachedNow = (): typeof cached => {
      plannings += 1;
      return cached;
    };
    return (memory = new HostMemory(
      { setting, source: testSource, counts, isHere },
      { slots, numberOf, cached: cachedNow, rates: () => rates, runtime, log: silentLog },
    ));
  }

  /** Ends the hold under way, this number of times. */
  async function fill(times: number): Promise<void> {
    for (let time = 0; time < times; time++) {
      assert.ok(slots.holding !== null, `no hold is under way after ${time}`);
      slots.endHold(true);
      await settle();
    }
  }

  it('are the most used ones of the served layers, one after the other, within the requested size', async () => {
    counts.add(1, 7, 5);
    counts.add(4, 9, 8);
    counts.add(1, 3, 2);
    counts.add(2, 0, 99);
    const host = open(2 * EXPERT_BYTES + 100);
    assert.deepEqual(slots.calls, [], 'nothing is read for layers of which the worker does not know yet');
    host.serve(LAYERS);
    await fill(2);
    assert.deepEqual(slots.calls, ['hold 409', 'hold 107']);
    assert.equal(slots.holding, null);
    assert.equal(host.heldNumber(4, 9), 409);
    assert.equal(host.heldNumber(1, 3), null);
    assert.deepEqual(host.status, {
      budgetBytes: 2 * EXPERT_BYTES + 100,
      heldBytes: 2 * EXPERT_BYTES,
      experts: 2,
      filledBytes: 14,
      loads: 0,
      loadedBytes: 0,
    });
  });

  it('are divided by bandwidth, so that each layer ends when storage ends', async () => {
    rates = { hostBytesPerS: 100, storageBytesPerS: 100 };
    for (let expert = 0; expert < testSource.shape.experts; expert += 1) counts.add(1, expert, 50 + expert);
    const half = testSource.shape.experts / 2;
    const host = open('auto');
    host.serve(LAYERS);
    await fill(2 * half);
    assert.equal(slots.holding, null, 'the other half is storage to bring');
    assert.equal(slots.calls.filter((call) => /^hold 1\d\d$/.test(call)).length, half, 'though layer 1 is used more');
    assert.equal(host.heldNumber(1, 0), null);
    assert.notEqual(host.heldNumber(1, testSource.shape.experts - 1), null);
    rates = null;
    tick();
    assert.ok(slots.holding !== null, 'by use all are held');
    await fill(2 * half);
  });

  it('are planned once for many fills, and again where the host runs short in between', async () => {
    const all = LAYERS.length * testSource.shape.experts;
    const host = open('auto');
    host.serve(LAYERS);
    await fill(all);
    assert.equal(slots.holding, null);
    assert.equal(new Set(slots.calls).size, all, 'none is read twice');
    assert.equal(plannings, Math.ceil(all / FILLS_PER_PLAN) + 1);
  });

  it('are read only while the host has memory for the next one, whatever others have taken since the plan', async () => {
    freeBytes = PRESSURE_BYTES * 1.25 + 8 * EXPERT_BYTES;
    const host = open(64 * EXPERT_BYTES);
    host.serve(LAYERS);
    await fill(2);
    freeBytes = PRESSURE_BYTES * 1.25;
    await fill(1);
    assert.equal(slots.holding, null);
    assert.deepEqual(slots.calls, ['hold 100', 'hold 101', 'hold 102'], 'the one under way is kept');
    assert.equal(host.status.experts, 3);
  });

  it('are not read twice where a plan is made during the read', async () => {
    const host = open(2 * EXPERT_BYTES);
    host.serve(LAYERS);
    tick();
    await fill(1);
    tick();
    await fill(1);
    assert.equal(slots.holding, null);
    assert.deepEqual(slots.calls, ['hold 100', 'hold 101']);
    assert.equal(host.status.experts, 2);
  });

  it('are replaced by clearly more used ones, and not by slightly more used ones', async () => {
    counts.add(1, 7, 9);
    const host = open(EXPERT_BYTES);
    host.serve(LAYERS);
    await fill(1);
    counts.add(1, 8, 10);
    tick();
    assert.deepEqual(slots.calls, ['hold 107']);
    counts.add(1, 8, 10);
    tick();
    await fill(1);
    assert.deepEqual(slots.calls, ['hold 107', 'drop 107', 'hold 108']);
    assert.equal(host.heldNumber(1, 7), null);
  });

  it('exclude at first the experts that the device cache has whole', async () => {
    counts.add(1, 7, 9);
    counts.add(1, 8, 4);
    cached = [{ layer: 1, expert: 7 }];
    open(EXPERT_BYTES).serve(LAYERS);
    await fill(1);
    assert.deepEqual(slots.calls, ['hold 108']);
  });

  it('are dropped where the host runs short of memory, and come back when it has some again', async () => {
    counts.add(1, 7, 9);
    const host = open(EXPERT_BYTES);
    host.serve(LAYERS);
    await fill(1);
    freeBytes = 0;
    tick();
    assert.deepEqual(slots.calls, ['hold 107', 'drop 107']);
    assert.equal(host.status.heldBytes, 0);
    freeBytes = 16 * GIB;
    tick();
    await fill(1);
    assert.equal(host.heldNumber(1, 7), 107);
  });

  it('stop being read where the host runs short meanwhile', async () => {
    const host = open('auto');
    host.serve(LAYERS);
    freeBytes = 0;
    tick();
    await settle();
    assert.deepEqual(slots.calls, ['hold 100', 'cancel hold']);
    assert.equal(host.status.experts, 0);
    tick();
    assert.equal(slots.holding, null);
  });

  it('are tried once where they cannot be read, and the others are still read', async () => {
    counts.add(1, 7, 9);
    counts.add(1, 8, 4);
    open(EXPERT_BYTES).serve(LAYERS);
    slots.endHold(false, new OdmoeError('STORAGE_FAILED', 'broken'));
    await settle();
    await fill(1);
    tick();
    await settle();
    assert.deepEqual(slots.calls, ['hold 107', 'hold 108']);
  });

  it('are dropped for good where the device is lost', async () => {
    open('auto').serve(LAYERS);
    slots.endHold(false, new OdmoeError('DEVICE_LOST', 'gone'));
    await settle();
    tick();
    await settle();
    assert.deepEqual(slots.calls, ['hold 100']);
  });

  it('are tried again later where the host refuses memory', async () => {
    open('auto').serve(LAYERS);
    slots.endHold(false, new OdmoeError('DEVICE_OUT_OF_MEMORY', 'none left'));
    await settle();
    tick();
    await settle();
    assert.deepEqual(slots.calls, ['hold 100']);
    nowMs += REFUSED_REST_MS;
    tick();
    await fill(1);
    assert.deepEqual(slots.calls.slice(0, 2), ['hold 100', 'hold 100']);
  });

  it('do not end the worker where the plan fails', async () => {
    const host = open('auto', () => {
      throw new OdmoeError('INTERNAL', 'strange');
    });
    host.serve(LAYERS);
    tick();
    await settle();
    assert.deepEqual(slots.calls, []);
  });

  it('are only those whose bytes are on the disk', async () => {
    const here = new Set<number>([12]);
    const host = open('auto', (layer, expert) => layer === 1 && here.has(expert));
    host.serve(LAYERS);
    await fill(1);
    assert.equal(slots.holding, null);
    here.add(3);
    tick();
    await fill(1);
    assert.deepEqual(slots.calls, ['hold 112', 'hold 103']);
  });

  it('are dropped for layers that the worker serves no longer', async () => {
    const host = open(EXPERT_BYTES);
    host.serve([1]);
    await fill(1);
    host.serve([4]);
    await fill(1);
    assert.deepEqual(slots.calls, ['hold 100', 'drop 100', 'hold 400']);
    assert.equal(host.status.heldBytes, EXPERT_BYTES);
  });

  it('are released at the end, also one that is being read', async () => {
    const host = open('auto');
    host.serve(LAYERS);
    await fill(1);
    await host.close();
    tick();
    assert.deepEqual(slots.calls, ['hold 100', 'hold 101', 'cancel hold', 'drop 100']);
    assert.equal(host.status.heldBytes, 0);
  });
});
