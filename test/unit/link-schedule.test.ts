import assert from 'node:assert/strict';
import fc from 'fast-check';
import { LinkSchedule, type LinkLoad } from '../../engine/emulation/link-schedule.js';
import type { ExpertOrder } from '../../native/index.js';
import { perPart, sumOfParts } from '../../shared/model/expert-parts.js';

function load(changes: Partial<LinkLoad> = {}): LinkLoad {
  return { partMs: { exponent: 3, signMantissa: 9 }, recoverMs: 0, urgent: false, order: null, ...changes };
}

/** Names of the loads, each with its end time, if nothing else happens. */
function ends(schedule: LinkSchedule, names: ReadonlyMap<LinkLoad, string>): [string, number][] {
  const arrivals: [string, number][] = [];
  for (let next = schedule.next(); next !== null; next = schedule.next()) {
    arrivals.push([names.get(next.load) ?? '?', next.endMs]);
    schedule.remove(next.load, next.endMs);
  }
  return arrivals;
}

const blockOf = (block: number): ExpertOrder => [0, 1, 2].map((position) => ({ block, position })) as ExpertOrder;

describe('the schedule of a link', () => {
  it('serves one load after the other in the requested order', () => {
    const [first, second, schedule] = [load(), load(), new LinkSchedule()];
    schedule.begin(first, 100);
    schedule.begin(second, 101);
    const names = new Map([
      [first, 'first'],
      [second, 'second'],
    ]);
    assert.deepEqual(ends(schedule, names), [
      ['first', 112],
      ['second', 124],
    ]);
    assert.equal(schedule.size, 0);
  });

  it('lets an urgent load go first when the current read has ended', () => {
    const [first, urgent, schedule] = [load({ partMs: { exponent: 6, signMantissa: 6 } }), load(), new LinkSchedule()];
    schedule.begin(first, 0);
    schedule.begin(urgent, 1);
    schedule.change(urgent, { urgent: true }, 3);
    const names = new Map([
      [first, 'first'],
      [urgent, 'urgent'],
    ]);
    // Reads of 2 ms each: the second one is under way at 3 ms.
    assert.deepEqual(ends(schedule, names), [
      ['urgent', 16],
      ['first', 24],
    ]);
  });

  it('frees the link at once when a load is cancelled', () => {
    const [first, second, schedule] = [load(), load(), new LinkSchedule()];
    schedule.begin(first, 0);
    schedule.begin(second, 0);
    schedule.remove(first, 5);
    assert.deepEqual(ends(schedule, new Map([[second, 'second']])), [['second', 17]]);
  });

  it('reads no part that cache entries hold, and still takes the time of recovering', () => {
    const [kept, half, schedule] = [
      load({ partMs: perPart(() => 0), recoverMs: 3 }),
      load({ partMs: { exponent: 0, signMantissa: 8 }, recoverMs: 3 }),
      new LinkSchedule(),
    ];
    schedule.begin(half, 10);
    schedule.begin(kept, 10);
    const names = new Map([
      [kept, 'kept'],
      [half, 'half'],
    ]);
    assert.deepEqual(ends(schedule, names), [
      ['kept', 13],
      ['half', 18],
    ]);
  });

  it('recovers one load after the other, whatever is read meanwhile', () => {
    const nothing = perPart(() => 0);
    const kept = [0, 1, 2].map(() => load({ partMs: nothing, recoverMs: 4 }));
    const read = load({ partMs: { exponent: 3, signMantissa: 7 }, recoverMs: 4 });
    const schedule = new LinkSchedule();
    for (const each of [read, ...kept]) schedule.begin(each, 20);
    const names = new Map([[read, 'read'], ...kept.map((each, index) => [each, `kept ${index}`] as const)]);
    assert.deepEqual(ends(schedule, names), [
      ['kept 0', 24],
      ['kept 1', 28],
      ['kept 2', 32],
      // Its decompression comes behind theirs, 4 times 4 ms, although its read ends after 10 ms.
      ['read', 36],
    ]);
    const later = load({ partMs: nothing, recoverMs: 4 });
    schedule.begin(later, 50);
    assert.deepEqual(ends(schedule, new Map([[later, 'later']])), [['later', 54]]);
  });

  it('delays no load for recovering that takes less time than reading', () => {
    const loads = [0, 1, 2].map((index) => load({ recoverMs: 12, urgent: index === 2 }));
    const schedule = new LinkSchedule();
    loads.forEach((each, index) => schedule.begin(each, index));
    const names = new Map(loads.map((each, index) => [each, String(index)]));
    assert.deepEqual(
      ends(schedule, names).map(([name, endMs]) => [name, Math.round(endMs)]),
      [
        ['2', 15],
        ['0', 24],
        ['1', 36],
      ],
    );
  });

  it('follows blocks, in which exponents come first', () => {
    const [later, left, right, schedule] = [load(), load(), load(), new LinkSchedule()];
    for (const each of [later, left, right]) schedule.begin(each, 0);
    schedule.change(later, { order: blockOf(2) }, 0);
    schedule.change(left, { order: blockOf(1) }, 0);
    schedule.change(right, { order: blockOf(1) }, 0);
    const names = new Map([
      [later, 'later'],
      [left, 'left'],
      [right, 'right'],
    ]);
    const arrivals = ends(schedule, names).map(([name, endMs]) => [name, Math.round(endMs)]);
    // The first read of `later` was under way; then the exponents of both others, then the rest matrix by matrix.
    assert.deepEqual(
      arrivals.map(([name]) => name),
      ['left', 'right', 'later'],
    );
    assert.equal(arrivals[2]?.[1], 36);
  });

  it('is never idle while a read is due, and forgets no load', () => {
    const loads = fc.array(
      fc.record({
        gapMs: fc.integer({ min: 0, max: 20 }),
        partMs: fc.record(perPart(() => fc.integer({ min: 0, max: 9 }))),
        urgent: fc.boolean(),
        block: fc.option(fc.integer({ min: 0, max: 3 }), { nil: null }),
      }),
      { minLength: 1, maxLength: 8 },
    );
    fc.assert(
      fc.property(loads, (drawn) => {
        const schedule = new LinkSchedule();
        const arrivals: number[] = [];
        let nowMs = 0;
        let freeAtMs = 0;
        const endUntil = (untilMs: number): void => {
          for (let next = schedule.next(); next !== null && next.endMs <= untilMs; next = schedule.next()) {
            arrivals.push(next.endMs);
            schedule.remove(next.load, next.endMs);
          }
        };
        for (const { gapMs, partMs, urgent, block } of drawn) {
          nowMs += gapMs;
          endUntil(nowMs);
          freeAtMs = Math.max(freeAtMs, nowMs) + sumOfParts(partMs);
          const order = block === null ? null : blockOf(block);
          schedule.begin(load({ partMs, urgent, order }), nowMs);
        }
        endUntil(Infinity);
        assert.equal(arrivals.length, drawn.length);
        assert.deepEqual(
          arrivals,
          [...arrivals].sort((left, right) => left - right),
        );
        assert.ok(Math.abs(Math.max(...arrivals) - freeAtMs) < 1e-6, `${Math.max(...arrivals)} ms, not ${freeAtMs}`);
      }),
    );
  });
});
