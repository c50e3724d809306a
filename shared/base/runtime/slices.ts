import type { Runtime } from './runtime.js';

/** Long work that yields now and then, each time after some milliseconds at the most. */
export type SlicedWork<Result> = Generator<void, Result>;

/** Does the work and lets others have their turn between its slices. Throws what the work throws. */
export async function runInSlices<Result>(
  work: SlicedWork<Result>,
  runtime: Pick<Runtime, 'nextTurn'>,
): Promise<Result> {
  let slice = work.next();
  for (; slice.done !== true; slice = work.next()) {
    await new Promise<void>((resolve) => {
      runtime.nextTurn(resolve);
    });
  }
  return slice.value;
}

/** Does the work at once, where nobody waits for a turn. */
export function runAtOnce<Result>(work: SlicedWork<Result>): Result {
  let slice = work.next();
  while (slice.done !== true) slice = work.next();
  return slice.value;
}
