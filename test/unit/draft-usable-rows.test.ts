import assert from 'node:assert/strict';
import { usableDraftRows, usableDrafts } from '../../shared/decisions/placement/draft-rows.js';

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

describe('who drafts', () => {
  it('is shadow alone, or main alone, where the setting says so', () => {
    assert.deepEqual(usableDrafts({ rows: 4, source: 'shadow' }, 'sep', 1), { shadowRows: 4, ownRows: 1 });
    assert.deepEqual(usableDrafts({ rows: 'auto', source: 'shadow' }, 'sep', 1), { shadowRows: 'auto', ownRows: 1 });
    assert.deepEqual(usableDrafts({ rows: 4, source: 'lookup' }, 'sep', 1), { shadowRows: 1, ownRows: 4 });
  });

  it('is main by default, and shadow, too, where a number of rows is wanted', () => {
    assert.deepEqual(usableDrafts({ rows: 'auto', source: 'auto' }, 'sep', 1), { shadowRows: 1, ownRows: 'auto' });
    assert.deepEqual(usableDrafts({ rows: 3, source: 'auto' }, 'sep', 1), { shadowRows: 3, ownRows: 3 });
    assert.deepEqual(usableDrafts({ rows: 3, source: 'auto' }, 'off', 1), { shadowRows: 1, ownRows: 3 });
    assert.deepEqual(usableDrafts({ rows: 'auto', source: 'auto' }, 'router-ahead', 1), {
      shadowRows: 1,
      ownRows: 'auto',
    });
  });

  it('is nobody beside random predictions, beside a shadow that misses tokens, or with one row', () => {
    const nobody = { shadowRows: 1, ownRows: 1 };
    assert.deepEqual(usableDrafts({ rows: 3, source: 'auto' }, 'random', 1), nobody);
    assert.deepEqual(usableDrafts({ rows: 3, source: 'auto' }, 'sep', 2), nobody);
    for (const source of ['auto', 'shadow', 'lookup', 'mtp'] as const)
      assert.deepEqual(usableDrafts({ rows: 1, source }, 'sep', 1), nobody);
  });
});
