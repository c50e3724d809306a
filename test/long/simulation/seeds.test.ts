import { assertSeedsHold } from '../../simulation/seeds-hold.js';

const SEEDS = 120;
/** On a machine that is busy with other tests. */
const LIMIT_MS = 1_200_000;

describe('clusters with random settings, requests and faults', () => {
  it(`break no invariant (${SEEDS} seeds)`, () => assertSeedsHold(0, SEEDS)).timeout(LIMIT_MS);
});
