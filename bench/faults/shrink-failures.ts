import { describeScenario } from '../../simulator/faults/describe-scenario.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import { shrinkScenario } from '../../simulator/faults/shrink-scenario.js';
import type { SeedOutcome } from './seed-messages.js';

export interface Failure {
  seed: number;
  invariant: string;
  detail: string;
  /** The smallest scenario that was found to fail in the same way; none: it was not looked for. */
  scenario: string[];
}

/** Seeds of which a smaller scenario is looked for, and how many are tried of each. */
const MOST_SHRUNK = 5;
const TRIES = 120;
/** What ends the process cannot be tried in this one. */
const DEADLY = 'the process survives';

/** The failures of all seeds; the first ones as small as they get. */
export async function failuresOf(outcomes: readonly SeedOutcome[], shrink: boolean): Promise<Failure[]> {
  const references = new ReferenceAnswers();
  const failures: Failure[] = [];
  let shrunk = 0;
  try {
    for (const { seed, violations } of outcomes) {
      const [first] = violations;
      if (first === undefined) continue;
      const small = shrink && first.invariant !== DEADLY && shrunk++ < MOST_SHRUNK;
      const scenario = small ? await smallest(seed, first.invariant, references) : [];
      for (const violation of violations) failures.push({ seed, ...violation, scenario });
    }
  } finally {
    await references.dispose();
  }
  return failures;
}

async function smallest(seed: number, invariant: string, references: ReferenceAnswers): Promise<string[]> {
  const smaller = await shrinkScenario(
    drawScenario(seed),
    async (scenario) => {
      const { violations } = await runScenario(scenario, references);
      return violations.some((violation) => violation.invariant === invariant);
    },
    TRIES,
  );
  return describeScenario(smaller);
}
