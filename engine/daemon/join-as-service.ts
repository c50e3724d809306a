import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { formatDuration } from '../../shared/base/text/units.js';
import { anotherCodePauseMs } from '../trust/pairing.js';
import type { FindContext } from './find-cluster.js';

/** Shortest pause between two tries of a service to join by a code. */
const TRY_PAUSE_MS = 60_000;

/** True: a service manager runs this process and waits for its notices (`Type=notify`). */
export function isService(variables: NodeJS.ProcessEnv): boolean {
  return (variables['NOTIFY_SOCKET'] ?? '') !== '';
}

/**
 * Joins by a code, for a daemon that a service manager runs. Whatever the other end answers, the daemon waits and tries again: if it ended, nobody
 * would start it again, or it would show a new code at each start, and whoever stands between could refuse them until one is a code of his.
 * @param join `shownMs`: the times at which this process has shown codes; it adds its own
 * @throws what `join` has thrown, once the daemon is stopped; a defect
 */
export async function joinAsService<Result>(
  join: (shownMs: number[]) => Promise<Result>,
  { runtime, abandoned, say }: FindContext,
): Promise<Result> {
  const shownMs: number[] = [];
  for (;;) {
    try {
      return await join(shownMs);
    } catch (thrown) {
      if (abandoned.aborted || !(thrown instanceof OdmoeError)) throw thrown;
      const pauseMs = Math.max(TRY_PAUSE_MS, anotherCodePauseMs(shownMs, runtime.nowMs()));
      const again = `As a service it tries again by itself in ${formatDuration(Math.ceil(pauseMs / 1000) * 1000)}`;
      say(printableLine(`this machine is not in yet: ${thrown.message} [${thrown.code}]. ${again}`));
      await runtime.sleep(pauseMs, abandoned);
    }
  }
}
