import type { ExpertRecall } from '../../engine/generation/expert-recall.js';
import type { Model, Pass } from '../../native/index.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import type { AlignmentPeriods } from '../../shadow-node/predictor/alignment.js';
import type { PassPrediction } from '../../shadow-node/predictor/pass-predictions.js';
import { SHADOW_PASS_ROWS } from '../../shadow-node/predictor/shadow-model.js';
import { runPass } from '../../shadow-node/predictor/run-pass.js';
import { ShadowSequence } from '../../shadow-node/predictor/shadow-sequence.js';
import type { MainTrace } from './main-trace.js';

const RUNTIME = new WallRuntime();

export interface ReplayOptions {
  periods: AlignmentPeriods;
  /** The sampling of the shadow's own tokens; null: greedy. */
  sampling: SamplingOptions | null;
}

/**
 * Lets a shadow follow a trace as the daemon follows main, by the daemon's own code, and adds its predictions to the counts of `recall`
 * (OD-MoE equations 2 and 3).
 */
export async function replayTrace(
  trace: MainTrace,
  shadow: { model: Model; pass: Pass },
  { periods, sampling }: ReplayOptions,
  recall: ExpertRecall,
): Promise<void> {
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
  const sequence = new ShadowSequence(shadow.model, start, { onPrediction });
  try {
    await runReady(sequence, shadow.pass);
    for (const [index, tokenId] of tokenIds.entries()) {
      const position = promptIds.length + index;
      // The prompt's rows are sent with the first token, each iteration's rows with the next token.
      if (periods.keyValue > 0) sendRows(trace, sequence, shadow.model, index === 0 ? 0 : position - 1, position);
      sequence.announceToken({ position, tokenId, rows: 1, nextRows: 1, branch: 0 });
      await runReady(sequence, shadow.pass);
    }
  } finally {
    sequence.dispose();
  }
  for (const [iteration, layers] of trace.activated.slice(trace.promptIds.length).entries()) {
    for (const [layer, activated] of layers.entries()) {
      const correct = activated.filter((expert) => predicted[iteration]?.[layer]?.includes(expert)).length;
      recall.add(iteration, activated.length, correct);
    }
  }
}

/** Runs the sequence until it waits for main. */
async function runReady(sequence: ShadowSequence, pass: Pass): Promise<void> {
  for (;;) {
    const step = sequence.nextStep(SHADOW_PASS_ROWS);
    if (step.kind === 'wait' || step.kind === 'full') return;
    const [failure] = await runPass(pass, [{ sequence, step }], RUNTIME);
    if (failure !== undefined) throw failure.error;
  }
}

function sendRows(trace: MainTrace, to: ShadowSequence, model: Model, from: number, end: number): void {
  const rows = end - from;
  for (const layer of model.shape.layers.keys()) {
    const values = trace.sequence.cache.readRows(layer, from, rows);
    to.addRows({ epoch: 0, sequence: 0, layer, position: from, rows, values });
  }
}
