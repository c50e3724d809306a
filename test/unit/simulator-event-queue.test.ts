import assert from 'node:assert/strict';
import fc from 'fast-check';
import { EventQueue } from '../../bench/simulator/event-queue.js';
import { VirtualClock } from '../../bench/simulator/virtual-clock.js';

describe('simulated time', () => {
  it('gives events back by time, those of one time in the order in which they came', () => {
    const operation = fc.oneof(fc.integer({ min: 0, max: 9 }), fc.constant('take' as const));
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 200 }), (operations) => {
        const queue = new EventQueue();
        let waiting: { atMs: number; order: number }[] = [];
        let taken = -1;
        for (const [order, step] of operations.entries()) {
          if (step !== 'take') {
            waiting.push({ atMs: step, order });
            queue.add(step, () => (taken = order));
            continue;
          }
          waiting.sort((left, right) => left.atMs - right.atMs || left.order - right.order);
          const [expected, ...others] = waiting;
          const event = queue.take();
          assert.equal(event?.atMs, expected?.atMs);
          event?.happen();
          if (expected !== undefined) assert.equal(taken, expected.order);
          waiting = others;
          assert.equal(queue.length, waiting.length);
        }
      }),
    );
  });

  it('leaps to what happens next, and lets the past happen now', () => {
    const clock = new VirtualClock();
    const seen: [string, number][] = [];
    const see = (name: string) => (): void => void seen.push([name, clock.nowMs]);
    clock.after(5, () => {
      see('five')();
      clock.at(1, see('late'));
      clock.after(0, see('at once'));
    });
    clock.at(5, see('also five'));
    clock.at(2, see('two'));
    clock.run();
    const expected = [
      ['two', 2],
      ['five', 5],
      ['also five', 5],
      ['late', 5],
      ['at once', 5],
    ];
    assert.deepEqual(seen, expected);
    assert.equal(clock.handled, 5);
  });
});
