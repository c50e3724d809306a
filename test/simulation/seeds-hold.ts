import assert from 'node:assert/strict';
import { availableParallelism } from 'node:os';
import { happenedIn, runSeeds } from '../../bench/faults/run-seeds.js';

/**
 * Runs seeds on all cores: `count` of them, and those of `others`. No seed may break an invariant, and each event of `happenedIn` must happen in at least
 * one of them.
 */
export async function assertSeedsHold(from: number, count: number, others: readonly number[] = []): Promise<void> {
  const outcomes = await runSeeds({ from, count, processes: availableParallelism() });
  for (const seed of others) outcomes.push(...(await runSeeds({ from: seed, count: 1, processes: 1 })));
  assert.equal(outcomes.length, count + others.length);
  const failures = outcomes.flatMap(({ seed, violations }) =>
    violations.map(({ invariant, detail }) => `odmoe bench faults --seed ${seed}: ${invariant}: ${detail}`),
  );
  assert.deepEqual(failures, []);
  const missing = Object.entries(happenedIn(outcomes)).filter(([, times]) => times === 0);
  assert.deepEqual(missing, [], 'requests share passes and rows, and give memory back');
}
