/** Clusters whose time goes into loads, as `odmoe bench slices` measures them: sliced qualities trade answers for speed. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { measureServed, type ServedRow } from '../../bench/slices/measure-served.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

/** Least speed-ups over lossless huffman loads, where no load is begun before its execute waits. */
const LEAST_SPEEDUPS = { 'sliced(8,4)': 1.2, 'sliced(8,4,critical=0.3)': 1.6, 'sliced(8,4,low)': 2 } as const;
const QUALITIES = ['exact', ...Object.keys(LEAST_SPEEDUPS)];
/** An answer's own share of critical executions may differ by this much from the measured one. */
const SHARE_TOLERANCE = 0.1;

describe('a cluster whose time goes into loads', function () {
  this.timeout(120_000);
  let rows: readonly ServedRow[];
  const rowOf = (wanted: string): ServedRow => rows.find(({ quality }) => quality === wanted) ?? assert.fail(wanted);

  before(async () => {
    const clusters = [{ workers: 1, prediction: 'off' }] as const;
    rows = await measureServed(join(packageRoot(), 'models', 'demo'), { clusters, qualities: QUALITIES, tokens: 24 });
  });

  it('gives more tokens a second from slices than from lossless huffman loads', () => {
    for (const [quality, least] of Object.entries(LEAST_SPEEDUPS)) {
      const { speedup } = rowOf(quality);
      assert.ok(speedup >= least, `${quality}: ${speedup.toFixed(2)} times the tokens a second of lossless loads`);
    }
    assert.equal(rowOf('exact').speedup, 1);
  });

  it('reads the bytes that its answers report and that the paced link carries, and no slice that its quality does not name', () => {
    for (const { quality, read_bytes: read, link_bytes: carried, loads } of rows) {
      assert.ok(loads > 0);
      // Packed exponents of experts differ in size, and the link takes the mean of all.
      assert.ok(Math.abs(read / carried - 1) < (quality === 'exact' ? 0.001 : 1e-6), `${quality}: ${read}, ${carried}`);
    }
    const [both, upper] = [rowOf('sliced(8,4)').bytes_a_load, rowOf('sliced(8,4,low)').bytes_a_load];
    // Codes of 4 bits, and a scale and a zero for each group of 32.
    assert.equal((both - upper) / upper, 4 / 4.75);
    const share = (rowOf('sliced(8,4,critical=0.3)').bytes_a_load - upper) / (both - upper);
    assert.ok(Math.abs(share - 0.3) <= SHARE_TOLERANCE, `${share} of the executions are critical`);
  });
});
