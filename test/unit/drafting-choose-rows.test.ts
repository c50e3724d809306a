import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  chooseDraftRows,
  distinctExperts,
  type DraftCosts,
  expectedTokens,
  passMs,
} from '../../shared/decisions/placement/draft-rows.js';
import { MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';

const TESTBED: DraftCosts = {
  acceptance: 0.9,
  layerMs: 8,
  layerRowMs: 0.2,
  loadMs: 30,
  shadowTokenMs: 20,
  optimistic: true,
  workers: 8,
  layerWorkers: 8,
  slots: 1,
  layers: 32,
  experts: 8,
  expertsPerToken: 2,
};

const milliseconds = fc.double({ min: 0.001, max: 1000, noNaN: true });
const costs = fc.record({
  acceptance: fc.double({ min: 0, max: 1, noNaN: true }),
  layerMs: milliseconds,
  layerRowMs: fc.double({ min: 0, max: 100, noNaN: true }),
  loadMs: milliseconds,
  shadowTokenMs: milliseconds,
  optimistic: fc.boolean(),
  workers: fc.integer({ min: 1, max: 64 }),
  layerWorkers: fc.integer({ min: 1, max: 64 }),
  slots: fc.integer({ min: 1, max: 4 }),
  layers: fc.integer({ min: 1, max: 64 }),
  experts: fc.integer({ min: 8, max: 64 }),
  expertsPerToken: fc.integer({ min: 1, max: 8 }),
});

describe('drafting: the number of rows of a pass', () => {
  it('is between 1 and the limit', () => {
    fc.assert(
      fc.property(costs, fc.integer({ min: 1, max: MAX_DRAFT_ROWS }), (some, limit) => {
        const rows = chooseDraftRows(some, limit);
        assert.ok(Number.isInteger(rows) && rows >= 1 && rows <= limit, `${rows} of at most ${limit}`);
      }),
    );
  });

  it('is 1 when no draft is ever right', () => {
    fc.assert(
      fc.property(costs, (some) => {
        assert.equal(chooseDraftRows({ ...some, acceptance: 0 }), 1);
      }),
    );
  });

  it('does not fall when more drafts are right', () => {
    // Percents: two acceptances that differ by less than rounding say nothing about the order.
    const percent = fc.integer({ min: 0, max: 100 });
    fc.assert(
      fc.property(costs, percent, percent, (some, one, other) => {
        const low = chooseDraftRows({ ...some, acceptance: Math.min(one, other) / 100 });
        const high = chooseDraftRows({ ...some, acceptance: Math.max(one, other) / 100 });
        assert.ok(low <= high, `${low} rows at the lower, ${high} at the higher`);
      }),
    );
  });

  it('is the best of all allowed numbers', () => {
    fc.assert(
      fc.property(costs, fc.integer({ min: 1, max: MAX_DRAFT_ROWS }), (some, other) => {
        const rate = (rows: number): number => expectedTokens(some.acceptance, rows) / passMs(some, rows);
        assert.ok(rate(chooseDraftRows(some)) >= rate(other));
      }),
    );
  });

  it('grows where rows cost little, and is 1 where they cost as much as a pass', () => {
    assert.ok(chooseDraftRows(TESTBED) > 1);
    assert.equal(chooseDraftRows({ ...TESTBED, layerRowMs: TESTBED.layerMs }), 1);
    assert.equal(chooseDraftRows({ ...TESTBED, shadowTokenMs: 1000 }), 1);
  });

  it('depends on loads and on computation', () => {
    const one = { ...TESTBED, layerRowMs: 0, slots: 8, shadowTokenMs: 0 };
    assert.equal(passMs({ ...one, loadMs: 0 }, 4), 32 * 8);
    assert.equal(passMs({ ...one, loadMs: 80, workers: 2 }, 1), 32 * 80);
    assert.equal(passMs({ ...one, loadMs: 30, optimistic: false }, 1), 32 * 8 + 30);
    assert.equal(passMs({ ...one, shadowTokenMs: 100, loadMs: 0 }, 4), 400);
    assert.equal(passMs({ ...one, shadowTokenMs: 100, loadMs: 0, optimistic: false }, 4), 256 + 300);
    // 2 workers of 1 slot: the first two of 3.5 load ahead, the rest when those have run.
    assert.equal(passMs({ ...one, loadMs: 80, workers: 2, layerWorkers: 2, slots: 1, layers: 1 }, 2), 80 + 1.5 * 40);
    // A group of 2 of the 8 workers does so, too, while the other groups have time for their own layers.
    assert.equal(passMs({ ...one, loadMs: 80, layerWorkers: 2, slots: 1, layers: 1 }, 2), 20 + 1.5 * 40);
  });

  it('depends on the counts of distinct experts and tokens', () => {
    assert.equal(distinctExperts(8, 2, 1), 2);
    assert.equal(distinctExperts(8, 2, 2), 3.5);
    assert.ok(distinctExperts(8, 2, 16) < 8);
    assert.equal(expectedTokens(0.5, 3), 1.75);
    assert.equal(expectedTokens(1, 4), 4);
  });
});
