import assert from 'node:assert/strict';
import { spreadForDrafts } from '../../shared/decisions/placement/draft-rows.js';

describe('who may get an expert when drafts are verified', () => {
  it('is everybody, whatever is set; without drafts it is what is set', () => {
    for (const spread of ['group', 'all'] as const) {
      assert.equal(spreadForDrafts(1, spread), spread);
      assert.equal(spreadForDrafts(2, spread), 'all');
      assert.equal(spreadForDrafts('auto', spread), 'all');
    }
  });
});
