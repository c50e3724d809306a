import assert from 'node:assert/strict';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import { longScenario } from '../simulation/long-scenario.js';

const [REQUESTS, TOKENS] = [600, 22];
/** On a machine that is busy with other tests. */
const LIMIT_MS = 1_800_000;

describe('a cluster that answers for a very long time', () => {
  it(`holds no more after ${REQUESTS} requests and ten thousand tokens than after the first of them`, async function () {
    this.timeout(LIMIT_MS);
    const references = new ReferenceAnswers();
    try {
      const { violations } = await runScenario(longScenario(REQUESTS, TOKENS), references);
      assert.deepEqual(violations, []);
    } finally {
      await references.dispose();
    }
  });
});
