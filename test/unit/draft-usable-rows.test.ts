import assert from 'node:assert/strict';
import { usableDraftRows } from '../../shared/decisions/placement/draft-rows.js';

describe('the number of rows that a pass can use', () => {
  it('is the wanted number where shadow gets every token', () => {
    assert.equal(usableDraftRows(4, 'sep', 1), 4);
    assert.equal(usableDraftRows('auto', 'sep', 1), 'auto');
  });

  it('is one where drafting is off, or shadow does not follow the tokens of main', () => {
    for (const rows of [4, 'auto'] as const) {
      assert.equal(usableDraftRows(rows, 'random', 1), 1);
      assert.equal(usableDraftRows(rows, 'off', 1), 1);
      assert.equal(usableDraftRows(rows, 'sep', 2), 1);
      assert.equal(usableDraftRows(rows, 'sep', 0), 1);
    }
  });
});
