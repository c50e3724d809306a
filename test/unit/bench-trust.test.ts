import assert from 'node:assert/strict';
import { compareTrust } from '../../bench/trust/compare-trust.js';

const round = (plaintextMs: number, tlsMs: number) => ({ plaintextMs, tlsMs });

describe('bench trust', () => {
  it('compares the two clusters round by round, so that a slow round counts once', () => {
    const compared = compareTrust([[round(10, 11), round(100, 103), round(20, 21)]]);
    assert.deepEqual(compared.plaintextMs, { middle: 20, lowest: 10, highest: 100 });
    assert.deepEqual(compared.tlsMs, { middle: 21, lowest: 11, highest: 103 });
    assert.ok(Math.abs(compared.ratio.middle - 1.05) < 1e-9);
  });

  it('takes the mean of the two in the middle of an even number of rounds', () => {
    const compared = compareTrust([[round(1, 1), round(1, 2)]]);
    assert.ok(Math.abs(compared.ratio.middle - 1.5) < 1e-9);
  });

  it('lets the slowness of the cluster that started later cancel out over the starts', () => {
    const slowLater = 1.07;
    const compared = compareTrust([
      [round(100, 102 * slowLater), round(200, 204 * slowLater)],
      [round(100 * slowLater, 102), round(200 * slowLater, 204)],
    ]);
    assert.ok(Math.abs(compared.ratio.middle - 1.02) < 1e-9);
    assert.ok(Math.abs(compared.ratio.highest - 1.02 * slowLater) < 1e-9);
    assert.ok(Math.abs(compared.ratio.lowest - 1.02 / slowLater) < 1e-9);
  });
});
