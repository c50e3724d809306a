import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ExpertRecoder, IDLE_MS } from '../../worker-node/cache/expert-recoder.js';
import { TestSlots, settle, silentLog } from './worker-test-slots.js';

describe('worker: the packing of cached experts', () => {
  let slots: TestSlots;
  let nowMs: number;
  let timers: { atMs: number; run: () => void }[];
  let idle: boolean;
  let kept: Set<number>;
  let packer: ExpertRecoder;

  beforeEach(() => {
    slots = new TestSlots(4);
    [nowMs, timers, idle, kept] = [0, [], true, new Set([0, 1, 2, 3])];
    packer = new ExpertRecoder({
      slots,
      log: silentLog,
      isCached: (slot) => kept.has(slot),
      isIdle: () => idle,
      runtime: {
        nowMs: () => nowMs,
        after: (delayMs, run) => {
          const timer = { atMs: nowMs + delayMs, run };
          timers.push(timer);
          return { cancel: () => void (timers = timers.filter((other) => other !== timer)), unref: () => undefined };
        },
      },
    });
  });

  afterEach(async () => {
    await packer.close();
    assert.equal(slots.packing, null);
    assert.deepEqual(timers, []);
  });

  async function pass(milliseconds: number): Promise<void> {
    nowMs += milliseconds;
    const due = timers.filter(({ atMs }) => atMs <= nowMs);
    timers = timers.filter(({ atMs }) => atMs > nowMs);
    for (const { run } of due) run();
    await settle();
  }

  function load(...loaded: number[]): void {
    for (const slot of loaded) packer.loaded(slot);
    packer.worked();
  }

  async function end(outcome: Parameters<TestSlots['endPack']>[0]): Promise<void> {
    slots.endPack(outcome);
    await settle();
  }

  it('waits for an idle time, then packs one after the other', async () => {
    load(0, 1);
    await pass(IDLE_MS - 1);
    packer.worked();
    await pass(IDLE_MS - 1);
    assert.deepEqual(slots.calls, []);
    await pass(1);
    assert.deepEqual(slots.calls, ['pack 0']);
    await end('packed');
    assert.deepEqual([slots.calls, packer.packed], [['pack 0', 'pack 1'], 1]);
    await end('packed');
    await pass(10 * IDLE_MS);
    assert.deepEqual([slots.calls, packer.packed], [['pack 0', 'pack 1'], 2]);
  });

  it('has one timer at a time, and none where everything is packed', async () => {
    load(0);
    for (let message = 0; message < 50; message++) packer.worked();
    assert.equal(timers.length, 1);
    await pass(IDLE_MS);
    await end('packed');
    packer.worked();
    assert.equal(timers.length, 0);
  });

  it('stops at once when work arrives, and starts again later', async () => {
    load(0);
    await pass(IDLE_MS);
    packer.worked();
    assert.deepEqual(slots.calls, ['pack 0', 'cancel pack']);
    await settle();
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0', 'cancel pack', 'pack 0']);
    await end('packed');
    assert.equal(packer.packed, 1);
  });

  it('does not start while work is running', async () => {
    idle = false;
    load(0);
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, []);
    idle = true;
    packer.worked();
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0']);
  });

  it('leaves experts unchanged that do not fit, have gone, or are not cached', async () => {
    kept.delete(3);
    load(0, 1, 3);
    packer.emptied(1);
    await pass(IDLE_MS);
    await end('unfit');
    packer.worked();
    await pass(IDLE_MS);
    assert.deepEqual([slots.calls, packer.packed], [['pack 0'], 0]);
  });

  it('packs again after another load', async () => {
    load(0);
    await pass(IDLE_MS);
    await end('packed');
    packer.emptied(0);
    assert.equal(packer.packed, 0);
    load(0);
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0', 'pack 0']);
    await end('packed');
    assert.equal(packer.packed, 1);
  });

  it('ignores the end of packing for an expert that was replaced meanwhile', async () => {
    load(0);
    await pass(IDLE_MS);
    slots.cancelPack = () => undefined;
    load(0);
    await end('packed');
    assert.equal(packer.packed, 0);
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0', 'pack 0']);
    await end('packed');
    assert.equal(packer.packed, 1);
  });

  it('ends when the device is lost', async () => {
    load(0, 1);
    await pass(IDLE_MS);
    slots.failPack(new OdmoeError('DEVICE_LOST', 'the device has failed'));
    await settle();
    packer.worked();
    await pass(IDLE_MS);
    assert.deepEqual([slots.calls, packer.packed], [['pack 0'], 0]);
  });
});
