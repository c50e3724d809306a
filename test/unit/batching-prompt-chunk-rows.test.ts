import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  promptChunkRowsFor,
  PromptChunkSizer,
  expectedPassMs,
  longestPassMs,
  PassTimes,
} from '../../main-node/batching/prompt-chunk-rows.js';
import { LEAST_PROMPT_CHUNK_ROWS } from '../../main-node/batching/plan-pass.js';

const LIMIT = 256;

function measured(...passes: [rows: number, ms: number][]): { rows: number; ms: number }[] {
  const times = new PassTimes();
  for (const [rows, ms] of passes) times.add(rows, ms);
  return times.measured();
}

describe('batching: the estimated time of a pass by its rows', () => {
  it('is the median of passes of about that size, with a straight line between and beyond them', () => {
    const times = measured([1, 15], [1, 900], [1, 14], [9, 31], [1, 15]);
    assert.equal(expectedPassMs(times, 1), 15);
    assert.equal(expectedPassMs(times, 5), 23);
    assert.equal(expectedPassMs(times, 17), 47);
    assert.equal(expectedPassMs(measured(), 3), null);
  });

  it('follows a change of the measured time within as many passes as are remembered', () => {
    const slow = Array.from({ length: 8 }, (): [number, number] => [1, 300]);
    const quick = Array.from({ length: 5 }, (): [number, number] => [1, 30]);
    assert.equal(expectedPassMs(measured(...slow, ...quick), 1), 30);
  });

  it('is never more than in proportion to the measured time of fewer rows', () => {
    assert.equal(expectedPassMs(measured([1, 30], [10, 5000]), 10), 300);
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

describe('batching: the number of prompt rows beside answers', () => {
  it('is the least where nothing was measured, and never less than that', () => {
    assert.equal(promptChunkRowsFor([], 4, { maxDelayMs: 'auto', limit: LIMIT }), LEAST_PROMPT_CHUNK_ROWS);
    const steep = measured([1, 10], [9, 500]);
    assert.equal(promptChunkRowsFor(steep, 1, { maxDelayMs: 5, limit: LIMIT }), LEAST_PROMPT_CHUNK_ROWS);
    assert.equal(promptChunkRowsFor(steep, 1, { maxDelayMs: 5, limit: 3 }), 3);
  });

  it('is as large as the delay allows', () => {
    const times = measured([1, 10], [101, 60]);
    assert.equal(promptChunkRowsFor(times, 1, { maxDelayMs: 10, limit: LIMIT }), 20);
    assert.equal(promptChunkRowsFor(times, 1, { maxDelayMs: 'auto', limit: LIMIT }), 60);
    assert.equal(promptChunkRowsFor(times, 1, { maxDelayMs: 'auto', limit: 20 }), 20);
    const slow = measured([1, 1000], [101, 2000]);
    assert.equal(promptChunkRowsFor(slow, 1, { maxDelayMs: 'auto', limit: LIMIT }), 25);
  });

  it('makes a short pass at most four times as long under auto, a long one at most a quarter longer', () => {
    for (const [aloneMs, longestMs] of [
      [10, 40],
      [50, 200],
      [125, 328.125],
      [200, 250],
      [2000, 2500],
    ] as const)
      assert.equal(longestPassMs(aloneMs, 'auto'), longestMs);
  });
});

/** Rows of the prompt chunks and times of the passes, while one answer streams beside a long prompt. */
function beside(
  sizer: PromptChunkSizer,
  passes: number,
  passMs: (rows: number) => number,
): { rows: number; ms: number }[] {
  return Array.from({ length: passes }, () => {
    const rows = sizer.rows(1);
    const ms = passMs(1 + rows);
    sizer.ran({ answerRows: 1, promptChunkRows: rows, ms });
    return { rows, ms };
  });
}

describe('batching: prompt chunks', () => {
  const quick = (rows: number): number => 30 + (rows - 1) / 2;
  let sizer: PromptChunkSizer;

  beforeEach(() => {
    sizer = new PromptChunkSizer({ maxDelayMs: 'auto', limit: LIMIT });
  });

  function alone(...passes: number[]): void {
    for (const ms of passes) sizer.ran({ answerRows: 1, promptChunkRows: 0, ms });
  }

  it('grow soon beside a quick stream, though the first passes were slow', () => {
    sizer.ran({ answerRows: 0, promptChunkRows: 128, ms: 9000 });
    alone(900, 30, 30);
    sizer.ran({ answerRows: 1, promptChunkRows: 8, ms: 800 });
    const rows = beside(sizer, 30, quick).reduce((sum, pass) => sum + pass.rows, 0);
    assert.ok(rows >= 1900, `${rows} rows in 30 passes`);
  });

  it('grow to their bound again when passes without them have become quicker', () => {
    alone(...Array.from({ length: 8 }, () => 200));
    const passes = beside(sizer, 200, quick);
    // Each sixteenth pass has rows of the answer alone. After five such passes the median is the present time of such a pass.
    assert.ok(passes.slice(96).every(({ ms }) => ms <= 4 * 30));
    assert.equal(passes.filter(({ rows }) => rows === 0).length, 12);
  });

  it('are halved after a pass that took much too long, and grow again', () => {
    alone(30, 30, 30);
    const before = beside(sizer, 10, quick).at(-1)?.rows ?? 0;
    sizer.ran({ answerRows: 1, promptChunkRows: before, ms: 500 });
    const after = sizer.rows(1);
    assert.ok(before > 100 && after <= before / 2 && after >= before / 2 - 1);
    assert.equal(beside(sizer, 3, quick).at(-1)?.rows, before);
  });

  it('are left out of a pass only where an answer is ready', () => {
    alone(30);
    beside(sizer, 15, quick);
    assert.equal(sizer.rows(1), 0);
    assert.ok(sizer.rows(0) >= LEAST_PROMPT_CHUNK_ROWS);
  });
});
