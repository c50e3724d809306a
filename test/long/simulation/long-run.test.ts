import assert from 'node:assert/strict';
import { SeededRandom } from '../../../shared/base/runtime/seeded-random.js';
import { drawRequest } from '../../../simulator/faults/draw-request.js';
import { drawScenario } from '../../../simulator/faults/draw-scenario.js';
import { ReferenceAnswers } from '../../../simulator/faults/reference-answers.js';
import { runScenario } from '../../../simulator/faults/run-scenario.js';
import type { Scenario } from '../../../simulator/faults/scenario.js';

const [REQUESTS, TOKENS] = [600, 22];
/** On a machine that is busy with other tests. */
const LIMIT_MS = 1_800_000;
const FIRST_MS = 200;
const APART_MS = 60;
/** Longer than anything waits that belongs to requests, and than any of these takes to be answered. */
const LEAST_REST_MS = 30_000;
const ANSWER_MS = 600;
/** Times between which the cluster is asked, as parts of all requests. */
const PARTS = 3;

/**
 * A cluster with a shadow, drafts and a cache, without faults, that is asked so many times with options of all kinds; every fifth client goes
 * away. It rests twice meanwhile.
 */
function longScenario(count: number, maxTokens: number): Scenario {
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
  const perPart = Math.ceil(count / PARTS);
  const restMs = LEAST_REST_MS + perPart * ANSWER_MS;
  const timeOf = (index: number): number => FIRST_MS + index * APART_MS + Math.floor(index / perPart) * restMs;
  const requests = Array.from({ length: count }, (_, index) => ({
    atMs: timeOf(index),
    request: { ...drawRequest(random), maxTokens, ignoreEos: true, stop: [] },
    cancelAfterMs: index % 5 === 4 ? random.int(200) : null,
    readMs: 0,
    begins: null,
    follows: null,
  }));
  const nodes = drawn.nodes.map((node) => ({
    ...node,
    settings: { ...node.settings, main: { ...node.settings.main, maxQueuedRequests: count } },
  }));
  const restsMs = [1, 2].map((part) => timeOf(part * perPart) - APART_MS);
  return { ...drawn, nodes, requests, restsMs, calmMs: timeOf(count) };
}

function seedOf(isWanted: (scenario: Scenario) => boolean): number {
  for (let seed = 0; seed < 100_000; seed++) if (isWanted(drawScenario(seed))) return seed;
  throw new RangeError('no such seed');
}

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
