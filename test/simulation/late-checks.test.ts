import assert from 'node:assert/strict';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import type { Scenario } from '../../simulator/faults/scenario.js';

const LIMIT_MS = 120_000;

const ASKED_MS = 1500;
/** Main is so slow that the answer takes longer than the cluster is given to recover: the accounts begin as soon as it has ended. */
const PACE = { denseMs: 200, expertMs: 0.5, lmHeadMs: 0.5, loadMs: 20 };
const TOKENS = 24;

/** One answer on workers without a cache. Each of its executions runs again some time later. */
function checkedScenario(): Scenario {
  for (let seed = 0; seed < 10_000; seed++) {
    const drawn = drawScenario(seed);
    const [main, ...others] = drawn.nodes;
    const workers = others.filter(({ settings: { role } }) => role === 'worker').slice(0, 3);
    const [first] = drawn.requests.filter(({ follows, cancelAfterMs }) => follows === null && cancelAfterMs === null);
    const isWanted =
      main?.settings.main.verifyShare !== 0 &&
      main?.settings.main.experts === 'workers' &&
      main.settings.device.memoryBudgetBytes === 0 &&
      !drawn.hasAuthority &&
      workers.length === 3 &&
      workers.every(
        ({ settings: { worker, device } }) =>
          worker.pools === null && worker.cacheBytes === 0 && device.memoryBudgetBytes === 0,
      );
    if (!isWanted || first === undefined) continue;
    const nodes = [main, ...workers].map((node) => ({
      ...node,
      startMs: 0,
      wallSkewMs: 0,
      fetches: false,
      isNewer: false,
    }));
    main.settings.main.verifyShare = 1;
    const request = { ...first.request, maxTokens: TOKENS, ignoreEos: true };
    const requests = [{ ...first, begins: null, atMs: ASKED_MS, request }];
    return { ...drawn, pace: PACE, nodes, requests, faults: [], restsMs: [], calmMs: ASKED_MS };
  }
  throw new RangeError('no such scenario is drawn');
}

describe('the accounts of a scenario', () => {
  it('begin when the checks of earlier executions have ended and the workers have told of them', async () => {
    const references = new ReferenceAnswers();
    try {
      const { violations } = await runScenario(checkedScenario(), references);
      assert.deepEqual(violations, []);
    } finally {
      await references.dispose();
    }
  }).timeout(LIMIT_MS);
});
