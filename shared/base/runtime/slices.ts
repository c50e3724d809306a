import type { Runtime } from './runtime.js';

/** Long work that yields from time to time, after at most some milliseconds each. */
export type SlicedWork<Result> = Generator<void, Result>;

/** Does the work and gives other work a turn between its slices. Throws what the work throws. */
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

/** Does the work without pauses, for callers on whose thread no other work waits. */
export function runAtOnce<Result>(work: SlicedWork<Result>): Result {
  let slice = work.next();
  while (slice.done !== true) slice = work.next();
  return slice.value;
}
