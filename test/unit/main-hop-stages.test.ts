import assert from 'node:assert/strict';
import fc from 'fast-check';
import { hopLines } from '../../cli/output/hop-report.js';
import {
  addToHop,
  clearHop,
  hopStages,
  REMEMBERED_HOPS,
  LatestHops,
  type ReportedHop,
} from '../../main-node/cluster/hop-stages.js';
import type { HopStages } from '../../shared/wire/messages.js';

const stages = (roundTripMs: number): HopStages => ({
  roundTripMs,
  transitMs: roundTripMs / 2,
  callMs: 0,
  handOffMs: 0,
  executeMs: roundTripMs / 2,
  replyMs: 0,
});

function hopOf(
  ...results: readonly { calledUs: number; endedUs: number; answeredUs: number; executeUs: number }[]
): ReportedHop {
  const hop = { calledUs: 0, endedUs: 0, answeredUs: 0, executeUs: 0 };
  clearHop(hop);
  for (const result of results) addToHop(hop, result, result.executeUs);
  return hop;
}

describe('main: the time stages of a hop', () => {
  it('cover all experts of a message together', () => {
    const reported = hopOf(
      { calledUs: 100, endedUs: 600, answeredUs: 950, executeUs: 300 },
      { calledUs: 120, endedUs: 900, answeredUs: 950, executeUs: 350 },
    );
    const found = hopStages(1.5, reported) ?? assert.fail();
    const rounded = Object.fromEntries(
      Object.entries(found).map(([name, ms]: [string, number]) => [name, +ms.toFixed(6)]),
    );
    assert.deepEqual(rounded, {
      roundTripMs: 1.5,
      transitMs: 0.55,
      callMs: 0.1,
      handOffMs: 0.15,
      executeMs: 0.65,
      replyMs: 0.05,
    });
  });

  it('are unknown where an expert of the message reports no times, or none has arrived', () => {
    assert.equal(hopStages(1, hopOf()), null);
    const reported = { calledUs: 10, endedUs: 60, answeredUs: 95, executeUs: 30 };
    const silent = { calledUs: 0, endedUs: 0, answeredUs: 95, executeUs: 30 };
    assert.equal(hopStages(1, hopOf(reported, silent)), null);
    assert.equal(hopStages(1, hopOf(silent, reported)), null);
  });

  it('add up to the round trip where that is the longest, and are never negative', () => {
    const us = fc.nat(100_000);
    fc.assert(
      fc.property(us, us, us, us, us, (calledUs, onDeviceUs, replyUs, networkUs, executeUs) => {
        const endedUs = calledUs + onDeviceUs + 1;
        const answeredUs = endedUs + replyUs;
        const roundTripMs = (answeredUs + networkUs) / 1000;
        const found = hopStages(roundTripMs, hopOf({ calledUs, endedUs, answeredUs, executeUs })) ?? assert.fail();
        const { transitMs, callMs, handOffMs, executeMs, replyMs } = found;
        const parts = [transitMs, callMs, handOffMs, executeMs, replyMs];
        assert.ok(parts.every((ms) => ms > -1e-9));
        assert.ok(Math.abs(parts.reduce((sum, ms) => sum + ms, 0) - roundTripMs) < 1e-6);
      }),
    );
  });

  it('are reported as medians and 99th percentiles of the latest hops of connected workers', () => {
    const windows = new LatestHops();
    for (let index = 0; index < 100; index++) windows.add('old', stages(1000));
    for (let index = 1; index <= REMEMBERED_HOPS; index++) windows.add('old', stages(index));
    windows.add('gone', stages(1));
    const [first, ...rest] = windows.report(new Set(['old']));
    assert.deepEqual(rest, []);
    assert.equal(first?.hops, REMEMBERED_HOPS + 100);
    assert.equal(first.median.roundTripMs, REMEMBERED_HOPS / 2);
    assert.equal(first.p99.roundTripMs, Math.ceil(REMEMBERED_HOPS * 0.99));
    windows.add('old', stages(9000));
    assert.equal(windows.report(new Set(['old', 'gone'])).length, 1, 'who has left is forgotten');
    assert.equal(windows.report(new Set(['old']))[0]?.hops, REMEMBERED_HOPS + 101);
  });

  it('are shown in microseconds, on one line for each worker', () => {
    assert.deepEqual(hopLines({ workerHops: [] }), []);
    const lines = hopLines({ workerHops: [{ worker: 'w', hops: 1, median: stages(1), p99: stages(2) }] });
    assert.deepEqual(
      lines.slice(1).map((line) => line.split(/\s{2,}/)),
      [
        ['hop, us: p50/p99', 'round trip', 'transit', 'call', 'hand-off', 'execute', 'reply'],
        ['w', '1000/2000', '500/1000', '0/0', '0/0', '500/1000', '0/0'],
      ],
    );
  });
});
