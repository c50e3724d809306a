import assert from 'node:assert/strict';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import { longScenario } from './long-scenario.js';

/** `npm run test:long` has many more. */
const [REQUESTS, TOKENS] = [60, 10];
const LIMIT_MS = 300_000;

describe('a cluster that answers for a long time', () => {
  it(`holds no more after ${REQUESTS} requests than after the first of them`, async function () {
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
