import type { Runtime } from './runtime.js';

/** Long work that yields from time to time, after at most some milliseconds each. */
export type SteppedWork<Result> = Generator<void, Result>;

/** Does the work and gives other work a turn between its steps. Throws what the work throws. */
export async function runInSteps<Result>(
  work: SteppedWork<Result>,
  runtime: Pick<Runtime, 'nextTurn'>,
): Promise<Result> {
  let step = work.next();
  for (; step.done !== true; step = work.next()) {
    await new Promise<void>((resolve) => {
      runtime.nextTurn(resolve);
    });
  }
  return step.value;
}

/** Does the work without pauses, for callers on whose thread no other work waits. */
export function runAtOnce<Result>(work: SteppedWork<Result>): Result {
  let step = work.next();
  while (step.done !== true) step = work.next();
  return step.value;
}
