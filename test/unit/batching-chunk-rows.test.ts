import assert from 'node:assert/strict';
import fc from 'fast-check';
import { chunkRowsFor, expectedPassMs, PassTimes } from '../../main-node/batching/chunk-rows.js';
import { LEAST_CHUNK_ROWS } from '../../main-node/batching/plan-pass.js';

const LIMIT = 256;

function measured(...passes: [rows: number, ms: number][]): { rows: number; ms: number }[] {
  const times = new PassTimes();
  for (const [rows, ms] of passes) times.add(rows, ms);
  return times.measured();
}

describe('batching: what a pass takes by its rows', () => {
  it('is the mean of passes of about that size, and a straight line between and behind them', () => {
    const times = measured([1, 10], [1, 20], [9, 31]);
    assert.equal(expectedPassMs(times, 1), 15);
    assert.equal(expectedPassMs(times, 5), 23);
    assert.equal(expectedPassMs(times, 17), 47);
    assert.equal(expectedPassMs(measured(), 3), null);
  });

  it('never falls with more rows, whatever was measured', () => {
    const passes = fc.array(fc.tuple(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 1000 })), {
      minLength: 1,
    });
    fc.assert(
      fc.property(passes, fc.integer({ min: 1, max: 400 }), (drawn, rows) => {
        const times = measured(...drawn);
        assert.ok((expectedPassMs(times, rows) ?? -1) <= (expectedPassMs(times, rows + 1) ?? -1) + 1e-9);
      }),
    );
  });
});

describe('batching: rows of prompts beside answers', () => {
  it('are the least where nothing was measured, and in any case', () => {
    assert.equal(chunkRowsFor([], 4, { maxDelayMs: 'auto', limit: LIMIT }), LEAST_CHUNK_ROWS);
    const steep = measured([1, 10], [9, 500]);
    assert.equal(chunkRowsFor(steep, 1, { maxDelayMs: 5, limit: LIMIT }), LEAST_CHUNK_ROWS);
    assert.equal(chunkRowsFor(steep, 1, { maxDelayMs: 5, limit: 3 }), 3);
  });

  it('are as many as the delay allows: under auto a quarter of what the pass takes without them', () => {
    const times = measured([1, 10], [101, 30]);
    assert.equal(chunkRowsFor(times, 1, { maxDelayMs: 10, limit: LIMIT }), 50);
    assert.equal(chunkRowsFor(times, 1, { maxDelayMs: 'auto', limit: LIMIT }), 12);
    assert.equal(chunkRowsFor(times, 51, { maxDelayMs: 'auto', limit: LIMIT }), 25);
    assert.equal(chunkRowsFor(times, 51, { maxDelayMs: 'auto', limit: 20 }), 20);
  });
});
