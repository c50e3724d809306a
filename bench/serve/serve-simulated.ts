import { ASSUMED_RECALL } from '../../cli/client/simulation-flags.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ExpertStorage } from '../../shared/settings/setting-choices.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { startDaemons, stopDaemons } from '../../simulator/cluster/run-daemons.js';
import { type SimulatedAnswer, SimulatedCluster } from '../../simulator/cluster/simulated-cluster.js';
import { ProfiledLinks } from '../../simulator/network/link-model.js';
import { clusterSettings } from '../../simulator/simulate/cluster-settings.js';
import {
  type ClusterSetUp,
  type ClusterTimes,
  clusterTimes,
  DEFAULT_SET_UP,
} from '../../simulator/simulate/cluster-set-up.js';
import { ClusterTiming } from '../../simulator/simulate/cluster-timing.js';
import { inTraceDirectory, placementOf } from '../../simulator/simulate/simulate-cluster.js';
import { tracedWorld } from '../../simulator/simulate/traced-world.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { tracePack } from '../../simulator/trace/trace-pack.js';
import { tracePromptIds, traceShape } from '../../simulator/trace/trace-model.js';
import { type AnswerRecord, type ServeRow, serveRow } from './serve-figures.js';
import { ANSWER_TOKENS, plannedRequest, PROMPT_TOKENS } from './user-plan.js';

export interface SimulatedServing {
  profile: DeviceProfile;
  expertStorage: ExpertStorage;
  prediction: 'sep' | 'off';
  workers: number;
  /** Number of answers of each user. */
  answers: number;
  seed: number;
}

/** Runs `users` users at a time on a profiled cluster: the daemons' own code on a virtual clock. Deterministic. */
export function serveSimulated(serving: SimulatedServing, users: number, batching: boolean): Promise<ServeRow> {
  return inTraceDirectory((directory) => run(serving, users, batching, directory));
}

async function run(serving: SimulatedServing, users: number, batching: boolean, directory: string): Promise<ServeRow> {
  const times = clusterTimes(serving.profile, serving.expertStorage);
  const trace = servedTrace(serving, users);
  const setUp = setUpOf(serving, times);
  let nowMs = (): number => 0;
  const timing = new ClusterTiming(
    trace,
    times,
    (request) => request,
    () => nowMs(),
    null,
  );
  const cluster = new SimulatedCluster({ links: () => new ProfiledLinks(times), seed: serving.seed });
  nowMs = () => cluster.clock.nowMs;
  const pack = tracePack('traced', traceShape(trace, times.model.shape));
  const traced = { times, setUp, trace, timing, pack, directory };
  const daemons = clusterSettings(setUp, directory, users).map((settings, index) => {
    const settled = servingSettings(settings, batching);
    return { settings: settled, world: tracedWorld(traced, settled, index) };
  });
  await startDaemons(cluster, daemons);
  const { records, loads } = await runUsers(cluster, serving, users, trace);
  timing.end();
  await stopDaemons(cluster);
  return serveRow({ users, batching, loads }, records);
}

/** All prompts of a trace repeat one token, so rows of one prompt must not be reused for another. */
function servingSettings(settings: NodeSettings, enabled: boolean): NodeSettings {
  if (settings.role !== 'main') return settings;
  return {
    ...settings,
    batching: { ...settings.batching, enabled },
    main: { ...settings.main, reusePrefixes: false },
  };
}

function setUpOf({ workers, prediction }: SimulatedServing, times: ClusterTimes): ClusterSetUp {
  const setUp = { ...DEFAULT_SET_UP, workers, prediction: { source: prediction, layersAhead: 1 } };
  return { ...setUp, placement: placementOf(times, setUp) };
}

/** Each request has its own prompt, with its planned length. */
function servedTrace({ profile, prediction, answers, seed }: SimulatedServing, users: number): ClusterTrace {
  const { expertLayers: layers, experts, expertsPerToken } = profile.model.shape;
  const recall = ASSUMED_RECALL[prediction];
  const setting = { layers, experts, expertsPerToken, prompts: users * answers, recall, acceptance: 0, seed };
  const most = { promptTokens: PROMPT_TOKENS.most, iterations: ANSWER_TOKENS.most };
  const numbers = new SyntheticTrace({ ...setting, ...most });
  const planned = (prompt: number) => plannedRequest(seed, Math.floor(prompt / answers), prompt % answers);
  return {
    layers,
    experts,
    expertsPerToken,
    prompts: users * answers,
    promptTokens: (prompt) => planned(prompt).promptTokens,
    iterations: () => ANSWER_TOKENS.most,
    activated: (place) => numbers.activated(place),
    predicted: (place) => numbers.predicted(place),
    guessedRight: (prompt, position) => numbers.guessedRight(prompt, position),
  };
}

async function runUsers(
  cluster: SimulatedCluster,
  { answers, seed }: SimulatedServing,
  users: number,
  trace: ClusterTrace,
): Promise<{ records: AnswerRecord[]; loads: number }> {
  const records: (AnswerRecord & { tokenMs: number[] })[] = [];
  const under = new Map<number, { answer: SimulatedAnswer; turn: number }>();
  const main = cluster.node('main').address;
  const ask = (user: number, turn: number): void => {
    const record = { user, askedMs: cluster.clock.nowMs, tokenMs: new Array<number>() };
    records.push(record);
    const request = {
      text: '',
      messages: [],
      promptTokenIds: tracePromptIds(trace, user * answers + turn),
      raw: true,
      stop: [],
      maxTokens: plannedRequest(seed, user, turn).answerTokens,
      sampling: null,
      ignoreEos: true,
      logprobs: 0,
    };
    const answer = cluster.ask(main, request, { onToken: () => record.tokenMs.push(cluster.clock.nowMs) });
    under.set(user, { answer, turn });
  };
  for (let user = 0; user < users; user += 1) ask(user, 0);
  let loads = 0;
  while (under.size > 0) {
    await cluster.clock.run(() => [...under.values()].some(({ answer }) => answer.overMs !== null));
    for (const [user, { answer, turn }] of [...under]) {
      if (answer.overMs === null) continue;
      const { finished, error } = answer;
      if (finished === null)
        throw error ?? new OdmoeError('INTERNAL', 'a simulated answer ended without its last message');
      loads = finished.nodes.reduce((sum, node) => sum + node.loads, 0);
      under.delete(user);
      if (turn + 1 < answers) ask(user, turn + 1);
    }
  }
  return { records, loads };
}
