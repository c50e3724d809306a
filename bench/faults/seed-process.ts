/** A process that runs the seeds that its parent sends, until the parent ends. */
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import type { Violation } from '../../simulator/faults/accounts/violation.js';
import type { SeedBlock, SeedReport } from './seed-messages.js';

const references = new ReferenceAnswers();
/** Unhandled rejections of the seed that runs. */
const uncaught: Violation[] = [];

process.on('unhandledRejection', (reason) => {
  const detail = reason instanceof Error ? (reason.stack ?? reason.message) : String(reason);
  uncaught.push({ invariant: 'every promise is awaited', detail });
});
process.on('disconnect', () => process.exit(0));

let running: Promise<void> = Promise.resolve();
process.on('message', (block: SeedBlock) => {
  running = running.then(() => runBlock(block));
});

async function runBlock({ from, count }: SeedBlock): Promise<void> {
  for (let seed = from; seed < from + count; seed++) {
    report({ kind: 'begun', seed });
    const { history, violations, happened } = await runScenario(drawScenario(seed), references);
    report({ kind: 'done', outcome: { seed, history, happened, violations: [...violations, ...uncaught.splice(0)] } });
  }
}

function report(what: SeedReport): void {
  process.send?.(what);
}
