import assert from 'node:assert/strict';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

/** Runs `body` on a virtual clock until it has settled. */
export async function onVirtualClock<Result>(body: (runtime: VirtualRuntime) => Promise<Result>): Promise<Result> {
  const clock = new VirtualClock();
  const runtime = new VirtualRuntime(clock, 1);
  let settled = false;
  const result = runtime
    .within(() => body(runtime))
    .finally(() => {
      settled = true;
    });
  result.catch(() => undefined);
  await clock.run(() => settled, { events: 1_000_000 });
  const answer = await result;
  assert.deepEqual(runtime.living.names(), [], 'the test has left these behind');
  return answer;
}
