import assert from 'node:assert/strict';
import { setTimeout as really } from 'node:timers/promises';
import fc from 'fast-check';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

describe('the virtual clock', () => {
  it('runs events by time, and those of one time in the order of scheduling', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(5), { maxLength: 40 }), fc.array(fc.nat(39)), async (times, cancelled) => {
        const clock = new VirtualClock();
        const happened: number[] = [];
        const events = times.map((atMs, index) => clock.schedule(atMs, () => happened.push(index)));
        for (const index of cancelled) events[index]?.cancel();
        await clock.run(() => clock.pendingCount === 0 || clock.nextEventMs === Infinity);
        const expected = [...times.keys()].filter((index) => !cancelled.includes(index));
        expected.sort((left, right) => (times[left] ?? 0) - (times[right] ?? 0) || left - right);
        assert.deepEqual(happened, expected);
      }),
      { numRuns: 50 },
    );
  });

  it('runs all promises before the next event, and gives works a fixed order whatever time they take', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    const order: string[] = [];
    const slow = async (): Promise<void> => {
      await runtime.outside(() => really(20), 5);
      order.push(`slow ${clock.nowMs}`);
      await Promise.resolve();
      order.push('after slow');
    };
    const fast = async (): Promise<void> => {
      await runtime.outside(async () => undefined, 5);
      order.push(`fast ${clock.nowMs}`);
    };
    const all = Promise.all([slow(), fast()]);
    let done = false;
    void all.then(() => (done = true));
    await clock.run(() => done);
    assert.deepEqual(order, ['slow 5', 'after slow', 'fast 5']);
    assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
  });

  it('reports an endless wait, and an endless run', async () => {
    const clock = new VirtualClock();
    await assert.rejects(
      clock.run(() => false),
      { code: 'INTERNAL' },
    );
    new VirtualRuntime(clock, 1).every(1, () => undefined);
    await assert.rejects(
      clock.run(() => false, { events: 100 }),
      { code: 'INTERNAL' },
    );
  });

  it('stops at a given time', async () => {
    const clock = new VirtualClock();
    const ticks: number[] = [];
    new VirtualRuntime(clock, 1).every(10, () => ticks.push(clock.nowMs));
    await clock.run(() => false, { untilMs: 35 });
    assert.deepEqual(ticks, [10, 20, 30]);
    assert.equal(clock.nowMs, 35);
  });
});

describe('the virtual runtime', () => {
  it('runs nothing in a killed process, and runs waiting events of a stopped one when it continues', async () => {
    const clock = new VirtualClock();
    const [killed, stopped] = [new VirtualRuntime(clock, 1), new VirtualRuntime(clock, 2)];
    const happened: string[] = [];
    for (const [name, runtime] of [['killed', killed] as const, ['stopped', stopped] as const]) {
      runtime.after(1, () => happened.push(`${name} timer`));
      void runtime.outside(async () => undefined, 2).then(() => happened.push(`${name} work`));
    }
    killed.kill();
    stopped.pause();
    await clock.run(() => false, { untilMs: 10 });
    assert.deepEqual(happened, []);
    stopped.resume();
    await clock.run(() => false, { untilMs: 11 });
    assert.deepEqual(happened, ['stopped timer', 'stopped work']);
  });

  it('runs timers of a continued process before its waiting messages, as a real event loop does', async () => {
    const clock = new VirtualClock();
    const stopped = new VirtualRuntime(clock, 1);
    const happened: string[] = [];
    stopped.pause();
    clock.schedule(1, () => stopped.happen(() => happened.push('message')));
    stopped.after(9, () => happened.push('timer'));
    stopped.after(5, () => {
      happened.push('earlier timer');
      stopped.nextTurn(() => happened.push('turn behind it'));
    });
    await clock.run(() => false, { untilMs: 10 });
    stopped.resume();
    await clock.run(() => false, { untilMs: 11 });
    assert.deepEqual(happened, ['earlier timer', 'timer', 'message', 'turn behind it']);
  });

  it('counts open resources', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    const timer = runtime.after(5, () => undefined);
    const ticks = runtime.every(5, () => undefined);
    runtime.nextTurn(() => undefined);
    assert.deepEqual(runtime.openCounts, { timers: 2, turns: 1, works: 0 });
    timer.cancel();
    timer.cancel();
    await clock.run(() => false, { untilMs: 20 });
    assert.deepEqual(runtime.openCounts, { timers: 1, turns: 0, works: 0 });
    ticks.cancel();
    assert.deepEqual(runtime.openCounts, { timers: 0, turns: 0, works: 0 });
  });

  it('sleeps until the signal aborts', async () => {
    const clock = new VirtualClock();
    const runtime = new VirtualRuntime(clock, 1);
    const abort = new AbortController();
    let wokenMs = -1;
    void runtime.sleep(100, abort.signal).then(() => (wokenMs = clock.nowMs));
    runtime.after(7, () => abort.abort());
    await clock.run(() => wokenMs >= 0);
    assert.equal(wokenMs, 7);
    assert.equal(runtime.openCounts.timers, 0);
  });
});

describe('seeded random numbers', () => {
  it('are the same for the same seed, in range, and spread', () => {
    fc.assert(
      fc.property(fc.nat(2 ** 31), fc.integer({ min: 1, max: 2 ** 48 }), (seed, limit) => {
        const [one, two] = [new SeededRandom(seed), new SeededRandom(seed)];
        for (let draw = 0; draw < 20; draw++) {
          const value = one.int(limit);
          assert.equal(value, two.int(limit));
          assert.ok(value >= 0 && value < limit && Number.isInteger(value));
        }
      }),
    );
    const counts = new Array<number>(10).fill(0);
    const random = new SeededRandom(7);
    for (let draw = 0; draw < 10_000; draw++) counts[random.int(10)] = (counts[random.int(10)] ?? 0) + 1;
    assert.ok(Math.max(...counts) < 1200 && Math.min(...counts) > 800, String(counts));
  });

  it('differ in forks with other names', () => {
    const random = new SeededRandom(1);
    assert.notEqual(random.fork('a').int(2 ** 40), random.fork('b').int(2 ** 40));
  });
});
