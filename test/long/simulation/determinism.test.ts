import assert from 'node:assert/strict';
import { Worker } from 'node:worker_threads';
import { historyOf, runSeeds } from '../../../bench/faults/run-seeds.js';
import type { SeedOutcome } from '../../../bench/faults/seed-messages.js';
import { instructionSets } from '../../../native/index.js';
import { drawScenario } from '../../../simulator/faults/draw-scenario.js';
import { ReferenceAnswers } from '../../../simulator/faults/reference-answers.js';
import { runScenario } from '../../../simulator/faults/run-scenario.js';

/** Among these, requests share passes and what was kept is dropped; none takes long. */
const FROM = 710;
const COUNT = 3;
const LIMIT_MS = 300_000;
const BUSY_THREADS = 2;

/** Threads that take what they get of the processors. */
async function underLoad<Result>(work: () => Promise<Result>): Promise<Result> {
  const threads = Array.from({ length: BUSY_THREADS }, () => new Worker('for (;;) Math.sqrt(2);', { eval: true }));
  try {
    return await work();
  } finally {
    await Promise.all(threads.map((thread) => thread.terminate()));
  }
}

/** In this process, the last one first. */
async function runBackwards(): Promise<SeedOutcome[]> {
  const references = new ReferenceAnswers();
  const outcomes: SeedOutcome[] = [];
  try {
    for (let seed = FROM + COUNT - 1; seed >= FROM; seed--) {
      const { history, violations, happened } = await runScenario(drawScenario(seed), references);
      outcomes.unshift({ seed, history, violations, happened });
    }
  } finally {
    await references.dispose();
  }
  return outcomes;
}

describe('the history of a seed', function () {
  this.timeout(LIMIT_MS);
  let once: SeedOutcome[];

  before(async () => {
    once = await runSeeds({ from: FROM, count: COUNT, processes: 2 });
  });

  it('is the same in another order, in one process, on a busy machine', async () => {
    assert.deepEqual(await underLoad(runBackwards), once);
  });

  it('is the same on every instruction set', async () => {
    const history = historyOf(once);
    for (const set of instructionSets().slice(1)) {
      const again = await runSeeds({
        from: FROM,
        count: COUNT,
        processes: 2,
        environment: { ODMOE_INSTRUCTION_SET: set },
      });
      assert.equal(historyOf(again), history, set);
    }
  });

  it('differs from that of another seed', () => {
    assert.equal(new Set(once.map(({ history }) => history)).size, COUNT);
  });
});
