import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { chooseGroupSize, meanWeightBytes, nominalLayerCosts } from '../../shared/decisions/placement/group-size.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { answerAll, startDaemons, stopDaemons } from '../cluster/run-daemons.js';
import { SimulatedCluster } from '../cluster/simulated-cluster.js';
import { ProfiledLinks } from '../network/link-model.js';
import { RecordingLinks } from '../timing/recording-links.js';
import type { ClusterTrace } from '../trace/cluster-trace.js';
import { tracePromptIds, traceShape } from '../trace/trace-model.js';
import { tracePack } from '../trace/trace-pack.js';
import { clusterSettings } from './cluster-settings.js';
import type { ClusterSetUp, ClusterTimes } from './cluster-set-up.js';
import { ClusterTiming } from './cluster-timing.js';
import { summarize, type SimulationResult } from './simulation-result.js';
import { tracedWorld } from './traced-world.js';

const SEED = 1;
export interface SimulationRequest {
  /** Tokens of each answer; fewer if the trace has no more. */
  tokens: number;
  /** Requests that run at the same time; 1 if left out. */
  requests?: number;
  /** Operations are stored around this position of the first prompt; null or left out: none are stored. */
  diagramPosition?: number | null;
  /** Called now and then with the tokens so far, and all that are to come. */
  onTokens?: (tokens: number, all: number) => void;
}

/**
 * Runs the trace's prompts through a cluster of the real daemons on a virtual clock. `requests` run at the same time, each for `tokens` tokens
 * or as many as the trace has. If there are fewer prompts than requests, prompts are used again. Deterministic. Throws the error of a daemon.
 */
export async function simulateCluster(
  times: ClusterTimes,
  setUp: ClusterSetUp,
  trace: ClusterTrace,
  { tokens, requests = 1, diagramPosition = null, onTokens }: SimulationRequest,
): Promise<SimulationResult> {
  return inTraceDirectory(async (directory) => {
    const promptOf = (request: number): number => request % trace.prompts;
    let nowMs = (): number => 0;
    const timing = new ClusterTiming(trace, times, promptOf, () => nowMs(), diagramPosition);
    const cluster = new SimulatedCluster({
      links: () => new RecordingLinks(new ProfiledLinks(times), timing.log, (...event) => timing.onMessage(...event)),
      seed: SEED,
    });
    nowMs = () => cluster.clock.nowMs;
    const pack = tracePack('traced', traceShape(trace, times.model.shape));
    const traced = { times, setUp, trace, timing, pack, directory };
    const settings = clusterSettings({ ...setUp, placement: placementOf(times, setUp) }, directory, requests);
    const daemons = settings.map((settings, index) => ({
      settings,
      world: tracedWorld(traced, settings, index),
    }));
    await startDaemons(cluster, daemons);
    const total = Math.max(trace.prompts, requests);
    const asked = Array.from({ length: total }, (_, request) => requestOf(trace, promptOf(request), tokens));
    const all = asked.reduce((sum, { maxTokens }) => sum + maxTokens, 0);
    const plan = { total, atOnce: requests, onTokens: (done: number) => onTokens?.(done, all) };
    const answers = await answerAll(cluster, plan, (request) => requirePresent(asked[request], 'Each has a prompt.'));
    timing.end();
    const result = summarize(answers, timing, { events: cluster.clock.eventCount, workers: setUp.workers });
    await stopDaemons(cluster);
    return result;
  });
}

/** The placement with the group size that the daemons would choose for the profiled model, because the traced model's experts have no size. */
export function placementOf(
  { model: { shape, quantization, format } }: ClusterTimes,
  setUp: ClusterSetUp,
): ClusterSetUp['placement'] {
  const { placement, workers } = setUp;
  if (placement.groupSize !== 'auto') return placement;
  const shipped = meanWeightBytes([{ format: quantization === 'none' ? 'bf16' : quantization, share: 1 }]);
  const bytes = format ? { storedBytes: format.expertBytes, heldBytes: format.expertBytes } : shipped;
  const costs = nominalLayerCosts(shape, bytes);
  return { ...placement, groupSize: chooseGroupSize(workers, shape.expertsPerToken, costs).size };
}

/** Calls `run` with a directory that daemons accept as a whole pack, and removes it afterwards. */
export async function inTraceDirectory<Result>(run: (directory: string) => Promise<Result>): Promise<Result> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-simulate-'));
  try {
    await writeFile(join(directory, 'trace'), '');
    return await run(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function requestOf(trace: ClusterTrace, prompt: number, tokens: number): GenerateRequest {
  return {
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
}
