import assert from 'node:assert/strict';
import { spreadForDrafts } from '../../shared/decisions/placement/draft-rows.js';

describe('the spread of experts while drafts are verified', () => {
  it('covers all workers, whatever is set; without drafts it follows the setting', () => {
    for (const spread of ['group', 'all'] as const) {
      assert.equal(spreadForDrafts(1, spread), spread);
      assert.equal(spreadForDrafts(2, spread), 'all');
      assert.equal(spreadForDrafts('auto', spread), 'all');
    }
  });
});
