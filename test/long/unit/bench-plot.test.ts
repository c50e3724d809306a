import assert from 'node:assert/strict';
import { svgFile, ticks } from '../../../shared/base/text/svg-drawing.js';
import { heatMap } from '../../../bench/plot/heat-map.js';
import { linePlotSvg } from '../../../bench/plot/line-plot.js';

const PLOT = {
  title: 'A & B <plot>',
  xLabel: 'x',
  yLabel: 'y',
  rows: [
    [
      {
        title: 'left',
        series: [
          {
            name: 'one',
            points: [
              { x: 0, y: 0 },
              { x: 10, y: 4 },
            ],
          },
        ],
      },
      { title: 'right', series: [{ name: 'two', points: [] }] },
    ],
  ],
};

describe('line plots', () => {
  it('have a panel, a curve and a legend for each series, with escaped words', () => {
    const svg = linePlotSvg(PLOT);
    assert.match(svg, /^<svg [^>]*viewBox="0 0 520 262"/);
    assert.equal(svg.match(/<polyline/g)?.length, 2);
    assert.equal(svg.match(/<circle/g)?.length, 2);
    for (const words of ['A &amp; B &lt;plot&gt;', '>left<', '>right<', '>one<', '>two<'])
      assert.ok(svg.includes(words), words);
    assert.doesNotMatch(svg, /NaN|Infinity|undefined/);
  });

  it('put a point where the axes show it', () => {
    const svg = linePlotSvg(PLOT);
    // The right and upper ends of the axes: 10 and 4 are the last ticks.
    assert.match(svg, /<circle cx="248" cy="30"/);
    assert.match(svg, /<circle cx="52" cy="160"/);
  });

  it('have round ticks that reach the largest value', () => {
    assert.deepEqual(ticks(10), [0, 2, 4, 6, 8, 10]);
    assert.deepEqual(ticks(0.7), [0, 0.2, 0.4, 0.6000000000000001, 0.8]);
    assert.deepEqual(ticks(12), [0, 2.5, 5, 7.5, 10, 12.5]);
    assert.deepEqual(ticks(0), [0, 1]);
    assert.deepEqual(ticks(Number.NaN), [0, 1]);
    for (const most of [1e-9, 3, 99, 1234567]) assert.ok((ticks(most).at(-1) ?? 0) >= most * (1 - 1e-9));
  });
});

describe('heat maps', () => {
  const MAP = {
    title: 'A <map>',
    xLabel: 'x',
    yLabel: 'y',
    columns: ['a', 'b'],
    rows: ['c', 'd'],
    values: [
      [0.5, 1],
      [null, 0.75],
    ],
    label: (value: number) => value.toFixed(2),
  };

  it('have a box for each value, darker for higher ones, with the value in it', () => {
    const { body } = heatMap(MAP);
    assert.deepEqual(body.match(/fill="rgb\([^)]*\)"|fill="#eeeeee"/g), [
      'fill="rgb(255 255 255)"',
      'fill="rgb(0 78 130)"',
      'fill="#eeeeee"',
      'fill="rgb(128 167 193)"',
    ]);
    for (const words of ['A &lt;map&gt;', '>0.50<', '>1.00<', '>0.75<', '>a<', '>d<']) {
      assert.ok(body.includes(words), words);
    }
  });

  it('have colours where all values are equal, and none where no value exists', () => {
    for (const value of [0.5, null]) assert.doesNotMatch(heatMap({ ...MAP, values: [[value]] }).body, /NaN|Infinity/);
  });

  it('can stand below other drawings in one file', () => {
    const map = heatMap(MAP);
    const svg = svgFile([{ width: 1000, height: 100, body: '' }, map]);
    assert.ok(svg.includes(`viewBox="0 0 1000 ${100 + map.height}"`));
    assert.ok(svg.includes(`<g transform="translate(${(1000 - map.width) / 2} 100)">`));
  });
});
