import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Finished, GenerateRequest } from '../../shared/wire/messages.js';
import type { SimulatedAnswer, SimulatedCluster } from './simulated-cluster.js';
import type { NodeWorld } from './simulated-node.js';

/** Virtual time in which started daemons find one another. */
const SETTLE_MS = 1_000;
/** Virtual time after which a daemon that has not started counts as failed. */
const START_LIMIT_MS = 600_000;

/** A daemon of a cluster without faults. */
export interface PlannedDaemon {
  settings: NodeSettings;
  world: NodeWorld;
}

/** An answer that has ended successfully. */
export interface FinishedAnswer extends SimulatedAnswer {
  finished: Finished;
}

/** Starts main last, so that it finds all other daemons at its first try. @throws the error of a daemon that could not be started */
export async function startDaemons(cluster: SimulatedCluster, daemons: readonly PlannedDaemon[]): Promise<void> {
  const { clock } = cluster;
  const nodes = daemons.map(({ settings, world }) => cluster.add(settings, world));
  const mains = nodes.filter(({ settings }) => settings.role === 'main');
  for (const started of [nodes.filter((node) => !mains.includes(node)), mains]) {
    for (const node of started) node.start();
    await clock.run(() => started.every(({ isReady, failure }) => isReady || failure !== null), {
      untilMs: clock.nowMs + START_LIMIT_MS,
    });
    const failed = started.find(({ isReady }) => !isReady);
    if (failed !== undefined) throw failed.failure ?? new OdmoeError('INTERNAL', `${failed.id} has not started`);
  }
  await clock.run(() => false, { untilMs: clock.nowMs + SETTLE_MS });
}

/** Resolves when all daemons are closed and disposed of. */
export async function stopDaemons({ clock, nodes }: SimulatedCluster): Promise<void> {
  let over = false;
  const stopped = Promise.all([...nodes.values()].map((node) => node.stop())).then(() => (over = true));
  await clock.run(() => over);
  await stopped;
}

/** Looks at the answers from one report of their tokens to the next: there is a look after each event. */
const LOOKS_OF_A_REPORT = 1000;

/** The number of answers to ask for, and how many of them run at the same time. */
export interface AnswerPlan {
  total: number;
  atOnce: number;
  /** Aborts when the answers are no longer wanted. */
  signal?: AbortSignal;
  /** Called now and then with the number of tokens so far. */
  onTokens?: (tokens: number) => void;
}

/** Asks for answers and waits for all of them. @throws the error of a failed answer; CANCELLED */
export async function answerAll(
  cluster: SimulatedCluster,
  { total, atOnce, signal, onTokens }: AnswerPlan,
  requestOf: (request: number) => GenerateRequest,
): Promise<FinishedAnswer[]> {
  const address = mainAddress(cluster);
  const answers: SimulatedAnswer[] = [];
  let looks = 0;
  const isOver = ({ overMs }: SimulatedAnswer): boolean => overMs !== null;
  while (answers.length < total || !answers.every(isOver)) {
    while (answers.length < total && answers.filter((answer) => !isOver(answer)).length < atOnce) {
      answers.push(cluster.ask(address, requestOf(answers.length)));
    }
    const over = answers.filter(isOver).length;
    const isWanted = (): boolean => signal?.aborted !== true;
    await cluster.clock.run(() => {
      looks += 1;
      if (looks % LOOKS_OF_A_REPORT === 0) onTokens?.(answers.reduce((sum, { tokens }) => sum + tokens.length, 0));
      return answers.filter(isOver).length > over || !isWanted();
    });
    if (!isWanted()) throw new OdmoeError('CANCELLED', 'nobody waits for the simulated answers any more');
  }
  return answers.map((answer) => {
    const { finished, error } = answer;
    if (finished === null) {
      throw error ?? new OdmoeError('INTERNAL', 'a simulated answer ended without its last message');
    }
    return { ...answer, finished };
  });
}

function mainAddress({ nodes }: SimulatedCluster): string {
  const main = [...nodes.values()].find(({ settings }) => settings.role === 'main');
  if (main === undefined) throw new OdmoeError('INTERNAL', 'the simulated cluster has no main');
  return main.address;
}
