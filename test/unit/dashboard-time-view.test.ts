import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  figureValues,
  formatSecondsAgo,
  latestOf,
  secondsAgo,
  shownSeconds,
  smoothed,
} from '../../dashboard/time-view/figure-series.js';
import { cellAt, cellBeside, heatStrengths, shareOf } from '../../dashboard/time-view/heat-cells.js';
import { recallByPosition } from '../../dashboard/time-view/recall-positions.js';
import { sampleFigures, sampleHeat, sampleHistory } from '../dashboard/sample-figures.js';

describe('the figures over time on the page', () => {
  it('count seconds back from the latest', () => {
    const samples = sampleHistory(0).slice(-3);
    assert.deepEqual(secondsAgo(samples), [-2, -1, 0]);
    assert.equal(shownSeconds(samples), 60);
    assert.equal(shownSeconds(sampleHistory(0)), 599);
    assert.equal(shownSeconds([]), 60);
  });

  it('show rows per pass, and nothing for a second without a pass', () => {
    const sample = sampleFigures(0);
    const values = figureValues(
      [
        { ...sample, passes: 4, rows: 6 },
        { ...sample, passes: 0, rows: 0 },
      ],
      'rowsPerPass',
    );
    assert.deepEqual(values, [1.5, null]);
    assert.equal(latestOf(values), 1.5);
    assert.equal(latestOf([null]), null);
  });

  it('are means of the measured values', () => {
    assert.deepEqual(smoothed([1, 3, null, 5, 8], 3), [1, 2, null, 4, 6.5]);
    assert.deepEqual(smoothed([1, null, 4], 1), [1, null, 4]);
  });

  it('stay within the measured values', () => {
    const values = fc.array(fc.option(fc.nat({ max: 100 })), { minLength: 1 });
    fc.assert(
      fc.property(values, fc.integer({ min: 1, max: 9 }), (measured, width) => {
        const known = measured.filter((value) => value !== null);
        const means = smoothed(measured, width);
        assert.deepEqual(
          means.map((value) => value === null),
          measured.map((value) => value === null),
        );
        for (const mean of means.filter((value) => value !== null)) {
          assert.ok(mean >= Math.min(...known) - 1e-9 && mean <= Math.max(...known) + 1e-9);
        }
      }),
    );
  });

  it('show their age', () => {
    assert.deepEqual([0, -30, -120, -331].map(formatSecondsAgo), ['now', '−30 s', '−2 min', '−5 min 31 s']);
  });
});

describe('recall by token position', () => {
  it('is shown as the share of each position', () => {
    assert.deepEqual(recallByPosition({ correct: [3, 0, 4], activated: [4, 0, 4] }), {
      positions: [1, 2, 3],
      recalls: [0.75, null, 1],
    });
  });

  it('of a long answer merges neighbours, weighted by their activated experts', () => {
    const activated = Array.from({ length: 256 }, (_, index) => (index % 2 === 0 ? 6 : 2));
    const correct = activated.map((count) => (count === 6 ? 6 : 0));
    const { positions, recalls } = recallByPosition({ correct, activated });
    assert.equal(positions.length, 128);
    assert.deepEqual(positions.slice(0, 2), [1.5, 3.5]);
    assert.ok(recalls.every((recall) => recall === 0.75));
  });
});

describe('the heat map of experts', () => {
  const heat = { expertLayers: 2, experts: 4, counts: [0, 1, 4, 5, 0, 0, 0, 0] };

  it('draws more used experts stronger, an even share half strong, and unused experts not at all', () => {
    assert.deepEqual(heatStrengths({ expertLayers: 2, experts: 2, counts: [1, 1, 0, 0] }), [0.5, 0.5, 0, 0]);
    const [never = 1, seldom = 0, often = 0, most = 0] = heatStrengths(heat);
    assert.equal(never, 0);
    assert.ok(seldom > 0 && seldom < 0.5 && often > 0.5 && most > often && most < 1);
  });

  it('scales each layer by itself: a layer with more rows is not stronger', () => {
    const strengths = heatStrengths({ expertLayers: 2, experts: 2, counts: [1, 3, 100, 300] });
    assert.deepEqual(strengths.slice(0, 2), strengths.slice(2));
  });

  it('shows the share of an expert within its layer', () => {
    assert.equal(shareOf(heat, { layer: 0, expert: 3 }), 0.5);
    assert.equal(shareOf(heat, { layer: 1, expert: 3 }), 0);
  });

  it('finds the cell at every point, and the middle of a cell maps back to it', () => {
    const large = sampleHeat();
    fc.assert(
      fc.property(fc.nat({ max: large.expertLayers - 1 }), fc.nat({ max: large.experts - 1 }), (layer, expert) => {
        const found = cellAt(large, (expert + 0.5) / large.experts, (layer + 0.5) / large.expertLayers);
        assert.deepEqual(found, { layer, expert });
      }),
    );
    assert.equal(cellAt(heat, 1, 0.5), null);
    assert.equal(cellAt(heat, 0.5, -0.1), null);
  });

  it('moves with the arrow keys, which stop at its edge', () => {
    assert.deepEqual(cellBeside(heat, { layer: 0, expert: 0 }, 'ArrowRight'), { layer: 0, expert: 1 });
    assert.deepEqual(cellBeside(heat, { layer: 0, expert: 0 }, 'ArrowUp'), { layer: 0, expert: 0 });
    assert.deepEqual(cellBeside(heat, { layer: 1, expert: 3 }, 'ArrowDown'), { layer: 1, expert: 3 });
    assert.equal(cellBeside(heat, { layer: 0, expert: 0 }, 'Enter'), null);
  });
});
