import assert from 'node:assert/strict';
import { compareTrust } from '../../bench/trust/compare-trust.js';

describe('bench trust', () => {
  it('compares the two clusters round by round, so that a slow round counts once', () => {
    const rounds = [
      { plaintextMs: 10, tlsMs: 11 },
      { plaintextMs: 100, tlsMs: 103 },
      { plaintextMs: 20, tlsMs: 21 },
    ];
    const compared = compareTrust(rounds);
    assert.deepEqual(compared.plaintextMs, { median: 20, lowest: 10, highest: 100 });
    assert.deepEqual(compared.tlsMs, { median: 21, lowest: 11, highest: 103 });
    assert.deepEqual(compared.ratio, { median: 1.05, lowest: 1.03, highest: 1.1 });
    assert.ok(Math.abs(compared.ratioLowerQuarter - 1.04) < 1e-9);
    assert.ok(Math.abs(compared.ratioUpperQuarter - 1.075) < 1e-9);
  });

  it('takes the middle of an even number of rounds', () => {
    const rounds = [1, 2].map((tlsMs) => ({ plaintextMs: 1, tlsMs }));
    assert.equal(compareTrust(rounds).ratio.median, 1.5);
  });
});
