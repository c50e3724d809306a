import type { ExpertRecall } from '../../engine/generation/expert-recall.js';
import type { Model, Pass } from '../../native/index.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import type { AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import type { PassPrediction } from '../../shadow-node/predictor/pass-predictions.js';
import { SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { runPass, type ShadowStep } from '../../shadow-node/predictor/run-pass.js';
import { ShadowSequence } from '../../shadow-node/predictor/shadow-sequence.js';
import type { MainTrace } from './main-trace.js';

const RUNTIME = new WallRuntime();

export interface ReplayOptions {
  periods: AlignmentPeriods;
  /** The sampling of the shadow's own tokens; null: greedy. */
  sampling: SamplingOptions | null;
}

/** A shadow's copy of the answer of a trace. */
interface Follower {
  readonly trace: MainTrace;
  readonly sequence: ShadowSequence;
  /** Predicted experts by iteration and layer. */
  readonly predicted: number[][][];
  readonly layers: number;
}

/**
 * Lets a shadow follow traces as the daemon follows main, by the daemon's own code, and adds its predictions to the counts of `recall`
 * (OD-MoE equations 2 and 3). All traces advance together, in passes of several sequences, which predict as each one alone.
 */
export async function replayTraces(
  traces: readonly MainTrace[],
  { model, pass }: { model: Model; pass: Pass },
  options: ReplayOptions,
  recall: ExpertRecall,
): Promise<void> {
  const followers: Follower[] = [];
  try {
    for (const trace of traces) followers.push(follower(trace, model, options));
    await runReady(followers, pass);
    const longest = Math.max(...traces.map(({ tokenIds }) => tokenIds.length));
    for (let index = 0; index < longest; index += 1) {
      const running = followers.filter(({ trace }) => index < trace.tokenIds.length);
      for (const each of running) announce(each, index, options);
      await runReady(running, pass);
    }
  } finally {
    for (const { sequence } of followers) sequence.dispose();
  }
  for (const { trace, predicted } of followers) count(trace, predicted, recall);
}

function follower(trace: MainTrace, model: Model, { periods, sampling }: ReplayOptions): Follower {
  const { promptIds, tokenIds } = trace;
  const predicted: number[][][] = [];
  const start = {
    tokenIds: [...promptIds],
    alignTokenPeriod: periods.token,
    alignKvPeriod: periods.keyValue,
    promptTokens: promptIds.length,
    maxPositions: promptIds.length + tokenIds.length,
    optimistic: false,
    spread: false,
    sampling,
  };
  const onPrediction = ({ position, layer, experts }: PassPrediction): void => {
    (predicted[position - promptIds.length] ??= [])[layer] = experts;
  };
  const sequence = new ShadowSequence(model, start, { onPrediction });
  return { trace, sequence, predicted, layers: model.shape.layers.length };
}

/** Main's token of an iteration, with the rows that main sends before it. */
function announce({ trace, sequence, layers }: Follower, index: number, { periods }: ReplayOptions): void {
  const position = trace.promptIds.length + index;
  // The prompt's rows are sent with the first token, each iteration's rows with the next token.
  if (periods.keyValue > 0) sendRows(trace, sequence, layers, [index === 0 ? 0 : position - 1, position]);
  sequence.announceToken({ position, tokenId: trace.tokenIds[index] ?? 0, rows: 1, nextRows: 1, branch: 0 });
}

function count({ promptIds, activated }: MainTrace, predicted: readonly number[][][], recall: ExpertRecall): void {
  for (const [iteration, layers] of activated.slice(promptIds.length).entries()) {
    for (const [layer, ofLayer] of layers.entries()) {
      const correct = ofLayer.filter((expert) => predicted[iteration]?.[layer]?.includes(expert)).length;
      recall.add(iteration, ofLayer.length, correct);
    }
  }
}

/** Runs the sequences until each waits for main. */
async function runReady(followers: readonly Follower[], pass: Pass): Promise<void> {
  for (;;) {
    const steps = readySteps(followers);
    if (steps.length === 0) return;
    const [failure] = await runPass(pass, steps, RUNTIME);
    if (failure !== undefined) throw failure.error;
  }
}

/** The next steps of as many sequences as a pass has room for. */
function readySteps(followers: readonly Follower[]): ShadowStep[] {
  const steps: ShadowStep[] = [];
  let room = SHADOW_PASS_ROWS;
  for (const { sequence } of followers) {
    if (room === 0) break;
    const step = sequence.nextStep(room);
    if (step.kind === 'wait' || step.kind === 'full') continue;
    steps.push({ sequence, step });
    room -= step.tokenIds.length;
  }
  return steps;
}

function sendRows(
  { sequence: main }: MainTrace,
  to: ShadowSequence,
  layers: number,
  [from, end]: readonly [number, number],
): void {
  const rows = end - from;
  for (let layer = 0; layer < layers; layer += 1) {
    const values = main.cache.readRows(layer, from, rows);
    to.addRows({ epoch: 0, sequence: 0, layer, position: from, rows, values });
  }
}
