import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  formatClock,
  formatCount,
  formatFigure,
  formatLayers,
  formatMilliseconds,
  formatShare,
} from '../../dashboard/format/quantities.js';

describe('the quantities on the page', () => {
  it('the page separates the thousands of a count', () => {
    assert.deepEqual([0, 999, 1000, 1_234_567].map(formatCount), ['0', '999', '1\u202f000', '1\u202f234\u202f567']);
  });

  it('a time of the clock has its day where that is not today', () => {
    const timeMs = new Date(2026, 10, 7, 9, 5, 3).getTime();
    assert.equal(formatClock(timeMs, timeMs + 3_600_000), '09:05:03');
    assert.equal(formatClock(timeMs, timeMs + 86_400_000), '7 Nov 2026, 09:05:03');
  });

  it('have three digits at most below a thousand', () => {
    assert.deepEqual([0, 0.416, 8.1, 9.999, 23.456, 99.96, 416.4].map(formatFigure), [
      '0',
      '0.42',
      '8.1',
      '10',
      '23.5',
      '100',
      '416',
    ]);
  });

  it('are in seconds from a thousand milliseconds on', () => {
    assert.deepEqual([0.416, 999.4, 999.6, 1234].map(formatMilliseconds), ['0.42 ms', '999 ms', '1 s', '1.23 s']);
  });

  it('are whole per cents where that is precise enough', () => {
    assert.deepEqual([0, 0.0416, 0.381, 0.9644, 0.99999, 1].map(formatShare), [
      '0 %',
      '4.2 %',
      '38 %',
      '96.4 %',
      '99.9 %',
      '100 %',
    ]);
  });

  it('never show 100% where something is missing', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (share) => formatShare(share) !== '100 %',
      ),
    );
  });

  it('name few layers each, and of many the first and the last', () => {
    assert.equal(formatLayers([1, 3]), '1, 3');
    assert.equal(formatLayers([0, 2, 4, 6]), '0, 2, 4, 6');
    assert.equal(formatLayers([0, 2, 4, 6, 8, 10]), '0, 2, 4 … 10');
  });
});
