import { operatorMs, type DeviceProfile } from '../../shared/emulation/device-profile.js';
import { nodeTimes } from '../../shared/emulation/node-times.js';
import type { ExpertStorage } from '../../shared/config/node-settings.js';
import { OdmoeError } from '../../shared/errors/index.js';
import type { ClusterTrace } from '../../simulator/trace/cluster-trace.js';
import { SimulatedCluster } from './simulated-cluster.js';
import { SimulatedMain, type AnswerTimes } from './simulated-main.js';
import type { ClusterSetUp, ClusterTimes } from './simulation-setting.js';
import { TimingRecorder } from './timing-recorder.js';
import { VirtualClock } from './virtual-clock.js';

export interface SimulationResult {
  answers: AnswerTimes[];
  ttftMs: number;
  /** Mean time of a token after the first; 0 where no answer has one. */
  tpotMs: number;
  decodeTokensPerS: number;
  outputTokensPerS: number;
  /** Of shadow; null where none predicts. */
  recall: number | null;
  /** Of drafts that main checked; null where there were none. */
  acceptance: number | null;
  rowsPerPass: number;
  tokensPerPass: number;
  recorder: TimingRecorder;
  events: number;
}

/** Times of a profile's nodes with experts kept in the form given. */
export function clusterTimes(profile: DeviceProfile, expertStorage: ExpertStorage): ClusterTimes {
  return {
    main: nodeTimes(profile, 'main', expertStorage),
    shadow: nodeTimes(profile, 'shadow', expertStorage),
    worker: nodeTimes(profile, 'worker', expertStorage),
    network: profile.network,
    hiddenSize: profile.model.hiddenSize,
  };
}

/** Time of a token on the profile's machine that holds the whole model: the fully cached row of OD-MoE table 2. */
export function cachedTokenMs(profile: DeviceProfile): number {
  const { denseLayer, expert, lmHead } = nodeTimes(profile, 'cached', 'fp32');
  const { layers, expertsPerToken } = profile.model;
  return layers * (operatorMs(denseLayer, 1) + expertsPerToken * operatorMs(expert, 1)) + operatorMs(lmHead, 1);
}

/**
 * Runs the trace's prompts through a cluster, one after another, each for `tokens` tokens or as many as the trace has. Deterministic.
 * `keepSpans`: positions whose spans the recorder keeps; of the first prompt.
 */
export function simulateCluster(
  times: ClusterTimes,
  setUp: ClusterSetUp,
  trace: ClusterTrace,
  tokens: number,
  keepSpans: (position: number) => boolean = () => false,
): SimulationResult {
  const clock = new VirtualClock();
  const answers: AnswerTimes[] = [];
  const recorder = new TimingRecorder(trace.layers, (position) => answers.length === 0 && keepSpans(position));
  const cluster = new SimulatedCluster(setUp, times, trace, clock, recorder);
  for (let prompt = 0; prompt < trace.prompts; prompt += 1) {
    const wanted = Math.min(tokens, trace.iterations(prompt) + 1);
    new SimulatedMain(cluster, prompt + 1, prompt, wanted, (answer) => answers.push(answer)).run();
    clock.run();
    if (answers.length === prompt) {
      throw new OdmoeError(
        'INTERNAL',
        `the simulation of prompt ${prompt} came to rest before its answer was complete`,
      );
    }
  }
  return summarize(answers, recorder, clock.handled, setUp);
}

function summarize(
  answers: AnswerTimes[],
  recorder: TimingRecorder,
  events: number,
  setUp: ClusterSetUp,
): SimulationResult {
  const sum = (of: (answer: AnswerTimes) => number): number => answers.reduce((all, answer) => all + of(answer), 0);
  const laterTokens = sum(({ tokens }) => tokens - 1);
  const tpotMs = laterTokens === 0 ? 0 : sum(({ lastTokenMs, ttftMs }) => lastTokenMs - ttftMs) / laterTokens;
  const passes = Math.max(1, recorder.passes.length);
  return {
    answers,
    ttftMs: sum(({ ttftMs }) => ttftMs) / answers.length,
    tpotMs,
    decodeTokensPerS: tpotMs === 0 ? 0 : 1000 / tpotMs,
    outputTokensPerS: (1000 * sum(({ tokens }) => tokens)) / sum(({ lastTokenMs }) => lastTokenMs),
    recall:
      setUp.prediction.source !== 'sep' || recorder.activated === 0
        ? null
        : recorder.predictedCorrectly / recorder.activated,
    acceptance: recorder.drafts === 0 ? null : recorder.acceptedDrafts / recorder.drafts,
    rowsPerPass: recorder.passes.reduce((rows, pass) => rows + pass.rows, 0) / passes,
    tokensPerPass: laterTokens / passes,
    recorder,
    events,
  };
}
