import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ExpertRecoder, IDLE_MS } from '../../worker-node/cache/expert-recoder.js';
import { TestSlots, settle, silentLog } from './worker-test-slots.js';

describe('worker: the recoding of cached experts', () => {
  let slots: TestSlots;
  let nowMs: number;
  let timers: { atMs: number; run: () => void }[];
  let idle: boolean;
  let kept: Set<number>;
  let recoder: ExpertRecoder;

  beforeEach(() => {
    slots = new TestSlots(4);
    [nowMs, timers, idle, kept] = [0, [], true, new Set([0, 1, 2, 3])];
    recoder = new ExpertRecoder({
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
    await recoder.close();
    assert.equal(slots.recoding, null);
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
    for (const slot of loaded) recoder.loaded(slot);
    recoder.worked();
  }

  async function end(outcome: Parameters<TestSlots['endPack']>[0]): Promise<void> {
    slots.endPack(outcome);
    await settle();
  }

  it('waits for an idle time, then recodes one after the other', async () => {
    load(0, 1);
    await pass(IDLE_MS - 1);
    recoder.worked();
    await pass(IDLE_MS - 1);
    assert.deepEqual(slots.calls, []);
    await pass(1);
    assert.deepEqual(slots.calls, ['pack 0']);
    await end('packed');
    assert.deepEqual([slots.calls, recoder.recoded], [['pack 0', 'pack 1'], 1]);
    await end('packed');
    await pass(10 * IDLE_MS);
    assert.deepEqual([slots.calls, recoder.recoded], [['pack 0', 'pack 1'], 2]);
  });

  it('has one timer at a time, and none where everything is recoded', async () => {
    load(0);
    for (let message = 0; message < 50; message++) recoder.worked();
    assert.equal(timers.length, 1);
    await pass(IDLE_MS);
    await end('packed');
    recoder.worked();
    assert.equal(timers.length, 0);
  });

  it('stops at once when work arrives, and starts again later', async () => {
    load(0);
    await pass(IDLE_MS);
    recoder.worked();
    assert.deepEqual(slots.calls, ['pack 0', 'cancel pack']);
    await settle();
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0', 'cancel pack', 'pack 0']);
    await end('packed');
    assert.equal(recoder.recoded, 1);
  });

  it('does not start while work is running', async () => {
    idle = false;
    load(0);
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, []);
    idle = true;
    recoder.worked();
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0']);
  });

  it('leaves experts unchanged that do not fit, have gone, or are not cached', async () => {
    kept.delete(3);
    load(0, 1, 3);
    recoder.emptied(1);
    await pass(IDLE_MS);
    await end('unfit');
    recoder.worked();
    await pass(IDLE_MS);
    assert.deepEqual([slots.calls, recoder.recoded], [['pack 0'], 0]);
  });

  it('recodes again after another load', async () => {
    load(0);
    await pass(IDLE_MS);
    await end('packed');
    recoder.emptied(0);
    assert.equal(recoder.recoded, 0);
    load(0);
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0', 'pack 0']);
    await end('packed');
    assert.equal(recoder.recoded, 1);
  });

  it('ignores the end of recoding for an expert that was replaced meanwhile', async () => {
    load(0);
    await pass(IDLE_MS);
    slots.cancelPack = () => undefined;
    load(0);
    await end('packed');
    assert.equal(recoder.recoded, 0);
    await pass(IDLE_MS);
    assert.deepEqual(slots.calls, ['pack 0', 'pack 0']);
    await end('packed');
    assert.equal(recoder.recoded, 1);
  });

  it('ends when the device is lost', async () => {
    load(0, 1);
    await pass(IDLE_MS);
    slots.failPack(new OdmoeError('DEVICE_LOST', 'the device has failed'));
    await settle();
    recoder.worked();
    await pass(IDLE_MS);
    assert.deepEqual([slots.calls, recoder.recoded], [['pack 0'], 0]);
  });
});
