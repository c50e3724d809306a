import assert from 'node:assert/strict';
import { drawRequest } from '../../simulator/faults/draw-request.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import { SeededRandom } from '../../shared/runtime/seeded-random.js';
import type { Scenario } from '../../simulator/faults/scenario.js';

const REQUESTS = 160;
const APART_MS = 60;
const LIMIT_MS = 300_000;

/** A cluster with a shadow, drafts and a cache, without faults, that is asked hundreds of times; every fifth client goes away. */
function longScenario(): Scenario {
  const drawn = drawScenario(
    seedOf(({ nodes, faults }) => {
      const [main, ...others] = nodes.map(({ settings }) => settings);
      const roles = others.map(({ role }) => role);
      const isSimple = nodes.every(({ fetches, startMs }) => !fetches && startMs === 0);
      const isWhole = roles.includes('shadow') && others.some(({ worker }) => worker.pools !== null);
      return isSimple && isWhole && faults.length === 0 && main?.drafting.rows === 'auto';
    }),
  );
  const random = new SeededRandom(1);
  const requests = Array.from({ length: REQUESTS }, (_, index) => ({
    atMs: 200 + index * APART_MS,
    request: { ...drawRequest(random), maxTokens: 12, ignoreEos: true, stop: [] },
    cancelAfterMs: index % 5 === 4 ? random.int(200) : null,
    readMs: 0,
    ...{ begins: null, follows: null },
  }));
  const nodes = drawn.nodes.map((node) => ({
    ...node,
    settings: { ...node.settings, main: { ...node.settings.main, maxQueuedRequests: REQUESTS } },
  }));
  return { ...drawn, nodes, requests, calmMs: REQUESTS * APART_MS };
}

function seedOf(isWanted: (scenario: Scenario) => boolean): number {
  for (let seed = 0; seed < 100_000; seed++) if (isWanted(drawScenario(seed))) return seed;
  throw new RangeError('no such seed');
}

describe('a cluster that answers for a long time', () => {
  it(`holds nothing of ${REQUESTS} requests when they are over`, async function () {
    this.timeout(LIMIT_MS);
    const references = new ReferenceAnswers();
    try {
      const { violations } = await runScenario(longScenario(), references);
      assert.deepEqual(violations, []);
    } finally {
      await references.dispose();
    }
  });
});
