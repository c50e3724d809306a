import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { activationCountsPath } from '../../shared/base/files/state-directory.js';
import { STORAGE_FORMS } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { CacheStatus } from '../../shared/wire/messages.js';
import { writeActivationCounts } from '../../engine/planning/activation-counts-file.js';
import { startDaemons, stopDaemons } from '../../simulator/cluster/run-daemons.js';
import { type SimulatedAnswer, SimulatedCluster } from '../../simulator/cluster/simulated-cluster.js';
import { ProfiledLinks } from '../../simulator/network/link-model.js';
import { type ClusterSetUp, DEFAULT_SET_UP, workerIds } from '../../simulator/simulate/cluster-set-up.js';
import { clusterSettings } from '../../simulator/simulate/cluster-settings.js';
import { ClusterTiming } from '../../simulator/simulate/cluster-timing.js';
import { inTraceDirectory } from '../../simulator/simulate/simulate-cluster.js';
import { tracedWorld } from '../../simulator/simulate/traced-world.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { tracePack } from '../../simulator/trace/trace-pack.js';
import { tracePromptIds, traceShape } from '../../simulator/trace/trace-model.js';
import { type PoolsMachine, cachingSettings, type ComparedPolicy, type MemoryDivision } from './cached-worker.js';

/** The prompts of a trace that are sent, and their order. */
export interface AskedPrompts {
  /** Prompts that the worker knows as counts from an earlier run. */
  recorded: readonly number[];
  /** Prompts that are answered first, one by one, without measurement; they fill the cache. */
  warm: readonly number[];
  /** Prompts that are measured. */
  asked: readonly number[];
  /** Measured prompts at a time. */
  atOnce: number;
  /** Tokens of each answer. */
  tokens: number;
}

/** An answer's times on the virtual clock. */
export interface MeasuredAnswer {
  askedMs: number;
  tokenMs: readonly number[];
}

export interface CachedAnswers {
  answers: MeasuredAnswer[];
  /** The worker's cache at the end; null: there is no cache. */
  cache: CacheStatus | null;
  loads: number;
}

const SEED = 1;

/**
 * Runs answers on one machine under one policy: main's and the worker's own code (cache, plan, loader) on a virtual clock, with the trace in
 * place of arithmetic. Experts are loaded after the router's choice, without predictions. Deterministic.
 */
export function askCached(
  machine: PoolsMachine,
  policy: ComparedPolicy,
  memory: MemoryDivision,
  trace: ClusterTrace,
  prompts: AskedPrompts,
): Promise<CachedAnswers> {
  return inTraceDirectory(async (directory) => {
    const { times, storage } = machine;
    const order = [...prompts.warm, ...prompts.asked];
    // The context is only as long as needed, because main checks how many contexts fit into memory.
    const maxPositions = prompts.tokens + Math.max(...order.map((prompt) => trace.promptTokens(prompt)));
    const shape = { ...traceShape(trace, times.model.shape), maxPositions };
    const pack = tracePack('traced', shape, STORAGE_FORMS[storage]);
    const setUp = setUpOf(shape.expertsPerToken);
    const [worker = ''] = workerIds(setUp.workers);
    const counts = recordedCounts(trace, prompts.recorded, pack.packDigest);
    await writeActivationCounts(activationCountsPath(directory, pack.packDigest, worker), counts);
    let nowMs = (): number => 0;
    const timing = new ClusterTiming(
      trace,
      times,
      (request) => order[request] ?? 0,
      () => nowMs(),
      null,
    );
    const cluster = new SimulatedCluster({ links: () => new ProfiledLinks(times), seed: SEED });
    nowMs = () => cluster.clock.nowMs;
    const traced = { times, setUp, trace, timing, pack, directory };
    const daemons = clusterSettings(setUp, directory, prompts.atOnce).map((settings, index) => {
      const settled = settle(settings, machine, policy, memory);
      return { settings: settled, world: tracedWorld(traced, settled, index) };
    });
    await startDaemons(cluster, daemons);
    await ask(cluster, trace, prompts.warm, 1, prompts.tokens);
    const asked = await ask(cluster, trace, prompts.asked, prompts.atOnce, prompts.tokens);
    await stopDaemons(cluster);
    return summary(asked);
  });
}

/** One worker whose slots hold the experts of a token. */
function setUpOf(expertsPerToken: number): ClusterSetUp {
  return {
    ...DEFAULT_SET_UP,
    workers: 1,
    slots: expertsPerToken,
    prediction: { source: 'off', layersAhead: 1 },
    placement: { groupSize: 1, spread: 'group', homes: 'group', replicas: 1 },
  };
}

/** All prompts of a trace repeat one token, so rows of one prompt must not be reused for another. */
function settle(
  settings: NodeSettings,
  machine: PoolsMachine,
  policy: ComparedPolicy,
  memory: MemoryDivision,
): NodeSettings {
  if (settings.role === 'worker') {
    return { ...settings, worker: cachingSettings(settings.worker, policy, memory, machine) };
  }
  return { ...settings, main: { ...settings.main, reusePrefixes: false } };
}

/** The counts of a worker that had served these prompts. */
export function recordedCounts(trace: ClusterTrace, prompts: readonly number[], packDigest: string): ActivationCounts {
  const counts = new ActivationCounts(packDigest, trace.experts);
  for (const prompt of prompts) {
    for (let position = 0; position < trace.promptTokens(prompt) + trace.iterations(prompt); position += 1) {
      for (let layer = 0; layer < trace.layers; layer += 1) {
        const experts = trace.activated({ prompt, position, layer, onPath: true });
        for (const expert of experts) counts.add(layer, expert, 1);
      }
    }
  }
  return counts;
}

interface Asked {
  answer: SimulatedAnswer;
  tokenMs: number[];
}

async function ask(
  cluster: SimulatedCluster,
  trace: ClusterTrace,
  prompts: readonly number[],
  atOnce: number,
  tokens: number,
): Promise<Asked[]> {
  const main = cluster.node('main').address;
  const asked: Asked[] = [];
  const underWay = (): number => asked.filter(({ answer }) => answer.overMs === null).length;
  for (const prompt of prompts) {
    const request = {
      text: '',
      messages: [],
      promptTokenIds: tracePromptIds(trace, prompt),
      raw: true,
      stop: [],
      maxTokens: Math.min(tokens, trace.iterations(prompt) + 1),
      sampling: null,
      ignoreEos: true,
      logprobs: 0,
    };
    const tokenMs: number[] = [];
    asked.push({ answer: cluster.ask(main, request, { onToken: () => tokenMs.push(cluster.clock.nowMs) }), tokenMs });
    if (underWay() >= atOnce) await cluster.clock.run(() => underWay() < atOnce);
  }
  await cluster.clock.run(() => underWay() === 0);
  return asked;
}

function summary(asked: readonly Asked[]): CachedAnswers {
  const finished = asked.map(({ answer }) => {
    if (answer.finished !== null) return answer.finished;
    throw answer.error ?? new OdmoeError('INTERNAL', 'a simulated answer ended without its last message');
  });
  const workers = finished.at(-1)?.nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER') ?? [];
  return {
    answers: asked.map(({ answer: { askedMs }, tokenMs }) => ({ askedMs, tokenMs })),
    cache: workers[0]?.cache ?? null,
    loads: workers.reduce((sum, { loads }) => sum + loads, 0),
  };
}
