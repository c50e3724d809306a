import assert from 'node:assert/strict';
import { countDrawn, neverDrawn } from '../../simulator/faults/count-drawn.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { assertSeedsHold } from './seeds-hold.js';

/** `npm run test:long` runs more. */
const [FROM, SEEDS] = [0, 20];
/** Scenarios that are drawn, and not run. */
const DRAWN = 250;
/** On a machine that is busy with other tests. */
const LIMIT_MS = 600_000;

describe('clusters whose settings, requests and faults a seed draws', () => {
  it(`break no invariant (${SEEDS} seeds)`, () => assertSeedsHold(FROM, SEEDS)).timeout(LIMIT_MS);

  it('draw everything that there is to be drawn', () => {
    const scenarios = Array.from({ length: DRAWN }, (_, seed) => drawScenario(seed));
    assert.deepEqual(neverDrawn(countDrawn(scenarios)), []);
  });
});
