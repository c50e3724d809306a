import assert from 'node:assert/strict';
import { measureHops } from '../../../bench/hop/measure-hops.js';

describe('a run of bench hop', () => {
  it('measures all three ways in one run', async function () {
    this.timeout(120_000);
    const [row] = await measureHops(0.05, [{ name: '1 KB to 2 workers', bytes: 1024, workers: 2 }]);
    assert.ok(row !== undefined);
    for (const { roundTrips, p10Us, medianUs, processorUs } of [row.tcp, row.grpc, row.tls]) {
      assert.equal(roundTrips, row.tls.roundTrips, 'turns are as many');
      assert.ok(roundTrips >= 50 && p10Us > 0 && medianUs >= p10Us && processorUs > 0);
    }
  });
});
