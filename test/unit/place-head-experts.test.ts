import assert from 'node:assert/strict';
import { headExpertsAtWorkers, type HeadExpertsPlace } from '../../main-node/drafting/place-head-experts.js';

describe("the place of the experts of the model's own head", () => {
  const at = (of: Partial<HeadExpertsPlace>): boolean =>
    headExpertsAtWorkers({ setting: 'auto', experts: 'workers', expertBytes: 50, leftBytes: 100, ...of });

  it('is where the setting says', () => {
    for (const leftBytes of [0, 1000, null])
      assert.deepEqual([at({ setting: 'main', leftBytes }), at({ setting: 'workers', leftBytes })], [false, true]);
  });

  it('is main by itself as far as they take half of what is left, or where nobody knows what is left', () => {
    assert.deepEqual([at({}), at({ expertBytes: 51 }), at({ expertBytes: 51, leftBytes: null })], [false, true, false]);
  });

  it('is main where there are no workers', () => {
    assert.equal(at({ expertBytes: 51, experts: 'local' }), false);
    assert.equal(at({ expertBytes: 51, experts: 'both' }), true);
  });
});
