import assert from 'node:assert/strict';
import fc from 'fast-check';
import { scrolledBy, viewedLines } from '../../cli/output/scrolled-lines.js';

const LINES = Array.from({ length: 20 }, (_, index) => `line ${index + 1}`);
const [UP, DOWN, PAGE_UP, PAGE_DOWN] = ['\u001b[A', '\u001b[B', '\u001b[5~', '\u001b[6~'];

describe('a view of lines', () => {
  it('shows all lines where they fit, else says which it shows', () => {
    assert.deepEqual(viewedLines(LINES, { first: 3, rows: 20 }), LINES);
    assert.deepEqual(viewedLines(LINES, { first: 2, rows: 4 }), [
      'line 3',
      'line 4',
      'line 5',
      'lines 3 to 5 of 20; arrows and PageDown scroll, q ends',
    ]);
    assert.deepEqual(viewedLines([], { first: 0, rows: 4 }), []);
  });

  it('moves by lines, pages and to both ends, with many keys in one chunk', () => {
    const moves: [string, number][] = [
      [DOWN + DOWN + 'j', 3],
      [DOWN + UP + UP, 0],
      [PAGE_DOWN + ' ', 18],
      [PAGE_DOWN + PAGE_DOWN + PAGE_DOWN, 11],
      ['G' + PAGE_UP, 2],
      ['G' + UP + 'k', 9],
      ['G' + 'g', 0],
      ['x\u001b[Z', 0],
    ];
    const rows = 10;
    for (const [keys, first] of moves)
      assert.equal(scrolledBy(keys, { first: 0, rows }, 20), Math.min(first, 11), keys);
  });

  it('never leaves the lines', () => {
    const keys = fc.array(fc.constantFrom(UP, DOWN, PAGE_UP, PAGE_DOWN, 'g', 'G', 'x')).map((each) => each.join(''));
    fc.assert(
      fc.property(keys, fc.integer({ min: 1, max: 30 }), fc.nat(40), fc.nat(60), (pressed, rows, count, first) => {
        const lines = LINES.concat(LINES).slice(0, count);
        const next = scrolledBy(pressed, { first, rows }, count);
        const shown = viewedLines(lines, { first: next, rows });
        assert.ok(next >= 0 && shown.length <= Math.max(rows, 2) && (count === 0 || shown[0] === lines[next]));
      }),
    );
  });
});
