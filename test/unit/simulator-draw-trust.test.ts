import assert from 'node:assert/strict';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { withAuthority } from '../../simulator/faults/draw-trust.js';
import { describeScenario } from '../../simulator/faults/describe-scenario.js';
import { isTrustFault, type Scenario } from '../../simulator/faults/scenario.js';
import { shrinkScenario } from '../../simulator/faults/shrink-scenario.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

const SEEDS = 300;
const SCENARIOS = Array.from({ length: SEEDS }, (_, seed) => drawScenario(seed));
const WITH = SCENARIOS.filter(({ hasAuthority }) => hasAuthority);

function plain(): Scenario {
  const scenario = SCENARIOS.find(({ hasAuthority, faults }) => !hasAuthority && faults.length === 1);
  assert.ok(scenario !== undefined);
  return scenario;
}

describe('the authority of a seed', () => {
  it('is drawn for a third of the seeds, and no other seed has one of its events', () => {
    assert.ok(WITH.length > SEEDS / 4 && WITH.length < SEEDS / 2, `${WITH.length}`);
    for (const { hasAuthority, faults } of SCENARIOS)
      assert.equal(
        hasAuthority,
        faults.some(({ kind }) => isTrustFault(kind)),
      );
  });

  it('changes nothing else of a scenario', () => {
    const before = plain();
    const after = Array.from({ length: 20 }, (_, seed) => withAuthority(new SeededRandom(seed), before));
    assert.ok(after.some(({ hasAuthority }) => hasAuthority));
    for (const { faults, hasAuthority, ...rest } of after) {
      assert.deepEqual(
        { ...rest, hasAuthority: false, faults: faults.filter(({ kind }) => !isTrustFault(kind)) },
        before,
      );
      assert.equal(typeof hasAuthority, 'boolean');
    }
  });

  it('leaves the first worker, and each worker that fetches, in the cluster', () => {
    const removed = WITH.flatMap(({ faults, nodes }) =>
      faults
        .filter(({ kind }) => kind === 'removal')
        .map(({ node }) => nodes.find(({ settings }) => settings.id === node)),
    );
    assert.ok(removed.length > 5);
    for (const node of removed) assert.ok(node !== undefined && node.settings.id !== 'w0' && !node.fetches);
  });

  it('starts main with an old roster only when all changes are over, and ends before it is calm', () => {
    const seen = WITH.filter(({ faults }) => faults.some(({ kind }) => kind === 'oldRoster'));
    assert.ok(seen.length > 5);
    for (const { faults, calmMs } of seen) {
      const old = faults.find(({ kind }) => kind === 'oldRoster');
      assert.ok(old !== undefined && old.atMs + old.forMs <= calmMs);
      const changes = faults.filter(({ kind }) => /letIn|renewal|endOfOldKeys|removal/.test(kind));
      for (const { atMs, forMs } of changes) assert.ok(atMs + forMs < old.atMs);
    }
  });

  it('is named in the description, and goes with its events when a scenario shrinks', async () => {
    const [drawn] = WITH;
    assert.ok(drawn !== undefined);
    assert.match(describeScenario(drawn)[0] ?? '', / nodes with an authority, calm from /);
    const smallest = await shrinkScenario(drawn, async () => true, 100_000);
    assert.equal(smallest.hasAuthority, false);
    assert.ok(smallest.faults.every(({ kind }) => !isTrustFault(kind)));
    const kept = await shrinkScenario(drawn, async ({ hasAuthority }) => hasAuthority, 100_000);
    assert.equal(kept.hasAuthority, true);
  });
});
