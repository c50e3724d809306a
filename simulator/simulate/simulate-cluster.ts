import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/errors/index.js';
import type { GenerateRequest } from '../../shared/rpc/messages.js';
import { SimulatedCluster, type SimulatedAnswer } from '../cluster/simulated-cluster.js';
import { ProfiledLinks } from '../network/link-model.js';
import { RecordingLinks } from '../timing/recording-links.js';
import type { ClusterTrace } from '../trace/cluster-trace.js';
import { tracePromptIds, traceShape } from '../trace/trace-model.js';
import { tracePack } from '../trace/trace-pack.js';
import { addressOf, clusterSettings } from './cluster-settings.js';
import { MAIN, type ClusterSetUp, type ClusterTimes } from './cluster-set-up.js';
import { ClusterTiming } from './cluster-timing.js';
import { summarize, type FinishedAnswer, type SimulationResult } from './simulation-result.js';
import { tracedWorld, type TracedCluster } from './traced-world.js';

const SEED = 1;
/** Virtual time in which daemons that have started find one another. */
const SETTLE_MS = 1_000;
/** A cluster that has not started by then never will. */
const START_LIMIT_MS = 60_000;

export interface SimulationRequest {
  /** Of each answer; fewer where the trace has no more. */
  tokens: number;
  /** Requests at a time; 1 if left out. */
  requests?: number;
  /** Operations are kept around this position of the first prompt; null or left out: none are. */
  diagramPosition?: number | null;
}

/**
 * Runs the trace's prompts through a cluster of the daemons themselves on a virtual clock, so many requests at a time, each for `tokens` tokens or as
 * many as the trace has. Prompts are asked again where there are fewer than requests. Deterministic. Throws what a daemon failed of.
 */
export async function simulateCluster(
  times: ClusterTimes,
  setUp: ClusterSetUp,
  trace: ClusterTrace,
  { tokens, requests = 1, diagramPosition = null }: SimulationRequest,
): Promise<SimulationResult> {
  const directory = await traceDirectory();
  try {
    const promptOf = (request: number): number => request % trace.prompts;
    let nowMs = (): number => 0;
    const timing = new ClusterTiming(trace, times, promptOf, () => nowMs(), diagramPosition);
    const cluster = new SimulatedCluster({
      links: () => new RecordingLinks(new ProfiledLinks(times), timing.log, (...told) => timing.onMessage(...told)),
      seed: SEED,
    });
    nowMs = () => cluster.clock.nowMs;
    const pack = tracePack('traced', traceShape(trace));
    await startDaemons(cluster, { times, setUp, trace, timing, pack, directory }, requests);
    const total = Math.max(trace.prompts, requests);
    const answers = await answerAll(cluster, total, requests, (request) => requestOf(trace, promptOf(request), tokens));
    timing.end();
    const result = summarize(answers, timing, { events: cluster.clock.eventCount, workers: setUp.workers });
    await stopDaemons(cluster);
    return result;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** A directory that daemons take for a whole pack's. */
async function traceDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-simulate-'));
  await writeFile(join(directory, 'trace'), '');
  return directory;
}

async function startDaemons(cluster: SimulatedCluster, traced: TracedCluster, requests: number): Promise<void> {
  const settings = clusterSettings(traced.setUp, traced.directory, requests);
  const nodes = settings.map((each, index) => cluster.add(each, tracedWorld(traced, each, index)));
  const peers = nodes.filter(({ id }) => id !== MAIN);
  const { clock } = cluster;
  // Main comes last, so that it finds everybody at its first try.
  for (const started of [peers, [cluster.node(MAIN)]]) {
    for (const node of started) node.start();
    const isDone = (): boolean => started.every(({ isReady, failure }) => isReady || failure !== null);
    if (!isDone()) await clock.run(isDone, { untilMs: clock.nowMs + START_LIMIT_MS });
    const failed = started.find(({ isReady }) => !isReady);
    if (failed !== undefined) throw failed.failure ?? new OdmoeError('INTERNAL', `${failed.id} has not started`);
  }
  await clock.run(() => false, { untilMs: clock.nowMs + SETTLE_MS });
}

async function stopDaemons({ clock, nodes }: SimulatedCluster): Promise<void> {
  let over = false;
  const stopped = Promise.all([...nodes.values()].map((node) => node.stop())).then(() => (over = true));
  await clock.run(() => over);
  await stopped;
}

function requestOf(trace: ClusterTrace, prompt: number, tokens: number): GenerateRequest {
  return {
    ...{ text: '', messages: [], promptTokenIds: tracePromptIds(trace, prompt), raw: true, stop: [] },
    maxTokens: Math.min(tokens, trace.iterations(prompt) + 1),
    ...{ sampling: null, ignoreEos: true, logprobs: 0 },
  };
}

async function answerAll(
  cluster: SimulatedCluster,
  total: number,
  atOnce: number,
  requestOf: (request: number) => GenerateRequest,
): Promise<FinishedAnswer[]> {
  const answers: SimulatedAnswer[] = [];
  const isOver = ({ overMs }: SimulatedAnswer): boolean => overMs !== null;
  while (answers.length < total || !answers.every(isOver)) {
    while (answers.length < total && answers.filter((answer) => !isOver(answer)).length < atOnce) {
      answers.push(cluster.ask(addressOf('main', MAIN), requestOf(answers.length)));
    }
    const over = answers.filter(isOver).length;
    await cluster.clock.run(() => answers.filter(isOver).length > over);
  }
  return answers.map((answer) => {
    const { finished, error } = answer;
    if (finished === null)
      throw error ?? new OdmoeError('INTERNAL', 'a simulated answer ended without its last message');
    return { ...answer, finished };
  });
}
