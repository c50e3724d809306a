import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { formatDuration } from '../../shared/base/text/units.js';
import { ENROLMENT_RETRY_PAUSE_MS } from '../../shared/wire/limits.js';
import { mayPass } from '../trust/enrolment-connection.js';
import { anotherCodePauseMs } from '../trust/pairing.js';
import type { FindContext } from './find-cluster.js';

/** Shortest pause between two tries to join by a code. */
const TRY_PAUSE_MS = 60_000;

/** The way of a daemon into its cluster. serviceCode: by a code, for a daemon that a service manager runs. */
export type JoinWay = 'token' | 'code' | 'serviceCode';

/** True: a service manager runs this process and waits for its notices (`Type=notify`). */
export function isService(variables: NodeJS.ProcessEnv): boolean {
  return (variables['NOTIFY_SOCKET'] ?? '') !== '';
}

/**
 * Joins, and tries again in words as long as main is slow, busy, away or cannot write. Only a refusal ends a daemon. A service that joins by a code
 * waits whatever the other end answers: if it ended, nobody would start it again, or it would show a new code at each start, and whoever stands
 * between could refuse them until one is a code of his.
 * @param join `shownMs`: the times at which this process has shown codes; it adds its own
 * @throws what `join` has thrown: a refusal; anything once the daemon is stopped; a defect
 */
export async function joinPatiently<Result>(
  way: JoinWay,
  join: (shownMs: number[]) => Promise<Result>,
  { runtime, abandoned, say }: FindContext,
): Promise<Result> {
  const shownMs: number[] = [];
  let told = '';
  for (;;) {
    try {
      return await join(shownMs);
    } catch (thrown) {
      if (abandoned.aborted || !(thrown instanceof OdmoeError)) throw thrown;
      if (way !== 'serviceCode' && !mayPass(thrown)) throw thrown;
      // A code gives whoever stands between one guess, so there are few of them.
      const pauseMs =
        way === 'token'
          ? ENROLMENT_RETRY_PAUSE_MS
          : Math.max(TRY_PAUSE_MS, anotherCodePauseMs(shownMs, runtime.nowMs()));
      const text = printableLine(
        `this machine is not in yet: ${thrown.message} [${thrown.code}]. ${againWords(way, pauseMs)}`,
      );
      if (text !== told) say(text);
      told = text;
      await runtime.sleep(pauseMs, abandoned);
    }
  }
}

function againWords(way: JoinWay, pauseMs: number): string {
  if (way === 'token') return 'It goes on trying';
  const pause = formatDuration(Math.ceil(pauseMs / 1000) * 1000);
  return way === 'code' ? `It tries again in ${pause}` : `As a service it tries again by itself in ${pause}`;
}
