import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { happenedIn, runSeeds } from '../../bench/faults/run-seeds.js';
import { countDrawn, neverDrawn } from '../../simulator/faults/count-drawn.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';

const SEEDS = 250;
/** On a machine that is busy with other tests. */
const LIMIT_MS = 600_000;

describe('clusters whose settings, requests and faults a seed draws', () => {
  it(`break no invariant (${SEEDS} seeds)`, async function () {
    this.timeout(LIMIT_MS);
    const outcomes = await runSeeds({ from: 0, count: SEEDS, processes: availableParallelism() });
    assert.equal(outcomes.length, SEEDS);
    const failures = outcomes.flatMap(({ seed, violations }) =>
      violations.map(({ invariant, detail }) => `odmoe bench faults --seed ${seed}: ${invariant}: ${detail}`),
    );
    assert.deepEqual(failures, []);
    const missing = Object.entries(happenedIn(outcomes)).filter(([, count]) => count === 0);
    assert.deepEqual(missing, [], 'requests share passes and rows, and give memory back');
  });

  it('draw everything that there is to be drawn', () => {
    const scenarios = Array.from({ length: SEEDS }, (_, seed) => drawScenario(seed));
    assert.deepEqual(neverDrawn(countDrawn(scenarios)), []);
  });
});
