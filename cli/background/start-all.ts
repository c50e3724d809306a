import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { daemonName, LOST_CODES } from '../demo/daemon-process.js';
import { runtime } from '../client/process-runtime.js';
import { isRunning } from './process-identity.js';
import type { ProcessRecord } from './process-records.js';
import {
  type BackgroundOptions,
  identityOf,
  startInBackground,
  type NodeToStart,
  type StartOutcome,
} from './start-in-background.js';
import { stopInBackground, type StopOutcome } from './stop-in-background.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Interval of the check whether daemons from an earlier start still run. */
const RUNNING_POLL_MS = 500;

/** `timeoutMs`: time in which a daemon must become ready. */
export interface StartAllOptions extends Pick<
  BackgroundOptions,
  'directory' | 'configPath' | 'timeoutMs' | 'flags' | 'variables' | 'onNotice'
> {
  /** Records of daemons that may already run, by their id. */
  records: ReadonlyMap<string, ProcessRecord>;
  onOutcome: (node: NodeToStart, outcome: StartOutcome) => void;
  onStop: (outcome: StopOutcome) => void;
}

/**
 * Starts the daemons together. They may wait for each other, so a daemon that cannot start would make the others wait forever. If one fails,
 * or ends while others still start, or the signal aborts, this call stops all daemons that it has started. Daemons from an earlier start
 * keep running. If a daemon is only late, all of them keep running.
 * @throws the code of the first failure, with the fate of the other daemons; TIMEOUT when daemons are late; CANCELLED
 */
export async function startAll(
  nodes: readonly NodeToStart[],
  options: StartAllOptions,
  signal: AbortSignal,
): Promise<void> {
  const launched: ProcessRecord[] = [];
  const unwanted = new AbortController();
  const ended: OdmoeError[] = [];
  const failed = (error: OdmoeError): void => {
    ended.push(error);
    unwanted.abort();
  };
  const cancel = (): void => failed(new OdmoeError('CANCELLED', 'interrupted while the daemons were starting'));
  const leave = onAbort(signal, cancel);
  if (signal.aborted) cancel();
  const { directory, configPath, timeoutMs, flags, variables, onNotice } = options;
  const launching = {
    directory,
    configPath,
    timeoutMs,
    flags,
    variables,
    onNotice,
    unwanted: unwanted.signal,
    onEnd: failed,
    onLaunch: (record: ProcessRecord) => void launched.push(record),
  };
  const allReady = new AbortController();
  const watching: Promise<void>[] = [];
  const late: OdmoeError[] = [];
  await Promise.all(
    nodes.map(async (node) => {
      const record = options.records.get(node.id);
      const outcome = await startInBackground(node, record, launching);
      options.onOutcome(node, outcome);
      if (outcome.kind === 'failed') failed(outcome.error);
      if (outcome.kind === 'late') late.push(outcome.error);
      if (outcome.kind === 'alreadyRunning' && record !== undefined) {
        const over = AbortSignal.any([allReady.signal, unwanted.signal]);
        watching.push(watchRunning(node, record, over, failed));
      }
    }),
  );
  allReady.abort();
  await Promise.all(watching);
  leave();
  const [first] = ended;
  if (first !== undefined) throw await stopAgain(launched, first, nodes.length, options);
  const [slow] = late;
  if (slow !== undefined) {
    const rest = '; nothing was stopped, and `odmoe down` stops them all; --timeout gives them longer';
    throw new OdmoeError('TIMEOUT', `${late.length} of ${nodes.length} daemons are not ready yet${rest}`, {
      cause: slow,
    });
  }
}

/** Reports a failure if a daemon from an earlier start ends while others start. */
async function watchRunning(
  node: NodeToStart,
  record: ProcessRecord,
  over: AbortSignal,
  failed: (error: OdmoeError) => void,
): Promise<void> {
  while (!over.aborted) {
    if (!(await isRunning(identityOf(record)))) {
      failed(new OdmoeError(LOST_CODES[node.role], `${daemonName(node)}, which ran before, has ended meanwhile`));
      return;
    }
    await runtime.sleep(RUNNING_POLL_MS, over);
  }
}

/** Stops the started daemons. Returns the error that explains why none of them runs. */
async function stopAgain(
  launched: readonly ProcessRecord[],
  first: OdmoeError,
  count: number,
  { directory, onStop }: StartAllOptions,
): Promise<OdmoeError> {
  const stopped = await Promise.allSettled(launched.map((record) => stopInBackground(directory, record)));
  for (const outcome of stopped) {
    if (outcome.status === 'fulfilled' && outcome.value.kind !== 'wasNotRunning') onStop(outcome.value);
  }
  const survivor = stopped.find((outcome) => outcome.status === 'rejected');
  if (survivor !== undefined) return survivor.reason as OdmoeError;
  const what = count === 1 ? 'the daemon did not start' : `the ${count} daemons were not all started`;
  return new OdmoeError(first.code, `${what}, and none that this command has started runs any more: ${first.message}`, {
    cause: first,
  });
}
