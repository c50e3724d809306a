import assert from 'node:assert/strict';
import { countDrawn, neverDrawn } from '../../simulator/faults/count-drawn.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { assertSeedsHold } from './seeds-hold.js';

/** First seed and number of seeds, in which nearly every event happens, and one with false pieces of packs. `npm run test:long` runs more. */
const [FROM, SEEDS] = [57, 24];
const OTHERS = [3];
/** Number of scenarios that are drawn and do not run. */
const DRAWN = 250;
/** Time limit on a machine that is busy with other tests. */
const LIMIT_MS = 600_000;

describe('clusters with random settings, requests and faults', () => {
  it(`break no invariant (${SEEDS + OTHERS.length} seeds)`, () => assertSeedsHold(FROM, SEEDS, OTHERS)).timeout(
    LIMIT_MS,
  );

  it('cover every possible choice at least once', () => {
    const scenarios = Array.from({ length: DRAWN }, (_, seed) => drawScenario(seed));
    assert.deepEqual(neverDrawn(countDrawn(scenarios)), []);
  });
});
