import assert from 'node:assert/strict';
import fc from 'fast-check';
import { planShadowPass, type WantedRows } from '../../shadow-node/predictor/predictor.js';

const iterate = (rows = 1): WantedRows => ({ kind: 'iterate', rows });
const prefill = (rows: number): WantedRows => ({ kind: 'prefill', rows });
const isUrgent = ({ kind, rows }: WantedRows) => kind === 'iterate' && rows === 1;
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

describe('shadow: the choice of rows for a pass', () => {
  it('gives a single sequence all its rows', () => {
    for (const wanted of [iterate(), iterate(5), prefill(8)]) {
      for (const wasLeftOut of [false, true]) {
        assert.deepEqual(planShadowPass([wanted], 8, wasLeftOut), { rows: [wanted.rows], leavesBulkOut: false });
      }
    }
  });

  it('takes all iterations together, and pieces of prompts with every second pass', () => {
    const wanted = [iterate(), prefill(8), iterate(), iterate(3)];
    assert.deepEqual(planShadowPass(wanted, 8, false), { rows: [1, 0, 1, 0], leavesBulkOut: true });
    assert.deepEqual(planShadowPass(wanted, 8, true), { rows: [1, 6, 1, 0], leavesBulkOut: false });
    assert.deepEqual(planShadowPass(wanted, 16, true), { rows: [1, 8, 1, 3], leavesBulkOut: false });
  });

  const wants = fc.array(
    fc.oneof(
      fc.constant(iterate()),
      fc.integer({ min: 2, max: 16 }).map(iterate),
      fc.integer({ min: 1, max: 16 }).map(prefill),
    ),
    { maxLength: 24 },
  );

  it('fills the pass or takes all available rows, and never more than wanted', () => {
    fc.assert(
      fc.property(wants, fc.integer({ min: 1, max: 16 }), fc.boolean(), (wanted, maxRows, wasLeftOut) => {
        const { rows, leavesBulkOut } = planShadowPass(wanted, maxRows, wasLeftOut);
        assert.equal(rows.length, wanted.length);
        rows.forEach((granted, index) => assert.ok(granted >= 0 && granted <= (wanted[index]?.rows ?? 0)));
        assert.ok(sum(rows) <= maxRows);
        const wantedNow = leavesBulkOut ? wanted.filter(isUrgent) : wanted;
        const hasBulk = !wanted.every(isUrgent);
        const all = sum(wantedNow.map((want) => want.rows));
        if (!hasBulk || leavesBulkOut || !wasLeftOut) assert.equal(sum(rows), Math.min(maxRows, all));
        assert.ok(wanted.length === 0 || sum(rows) > 0);
      }),
    );
  });

  it('makes an iteration wait for at most one bulk pass: the one before its own, or its own', () => {
    fc.assert(
      fc.property(
        fc.array(wants, { minLength: 2, maxLength: 12 }),
        fc.integer({ min: 8, max: 32 }),
        (rounds, maxRows) => {
          let [leftOut, bulkBefore] = [false, 0];
          for (const wanted of rounds) {
            const { rows, leavesBulkOut } = planShadowPass(wanted, maxRows, leftOut);
            const bulk = sum(wanted.map((want, index) => (isUrgent(want) ? 0 : (rows[index] ?? 0))));
            if (wanted.some(isUrgent)) assert.ok(bulk + bulkBefore <= maxRows);
            [leftOut, bulkBefore] = [leavesBulkOut, bulk];
          }
        },
      ),
    );
  });

  it('serves every sequence in turns, though there is always more work than a pass holds', () => {
    fc.assert(
      fc.property(wants, fc.integer({ min: 2, max: 8 }), (wanted, maxRows) => {
        let turns = wanted.map((_, index) => index);
        const served = new Set<number>();
        let leftOut = false;
        for (let pass = 0; pass < 4 * wanted.length; pass += 1) {
          const plan = planShadowPass(
            turns.map((index) => wanted[index] ?? iterate()),
            maxRows,
            leftOut,
          );
          const running = turns.filter((_, place) => (plan.rows[place] ?? 0) > 0);
          for (const index of running) served.add(index);
          turns = [...turns.filter((index) => !running.includes(index)), ...running];
          leftOut = plan.leavesBulkOut;
        }
        assert.equal(served.size, wanted.length);
      }),
    );
  });
});
