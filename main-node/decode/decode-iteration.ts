import type { GateChoice, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import { matchExperts, type ExpertAssignment } from '../../shared/placement/index.js';
import type { Placement, Prediction } from '../../shared/rpc/messages.js';
import { activatedExperts, type ActivatedRow } from './activated-experts.js';
import { settleAll, type ClusterEngine, type RequestCounters } from './cluster-engine.js';
import { gatherExpertRows, scatterExpertOutputs } from './expert-rows.js';
import type { FirstLayerAhead } from './first-layer-ahead.js';
import type { PassSlot } from './pass-pool.js';
import type { RandomPrefetch } from './random-prefetch.js';
import type { SequencePredictions } from './sequence-predictions.js';
import type { ShadowFeed } from './shadow-feed.js';
import { toldByPrediction } from './told-by-prediction.js';

const FLOAT_BYTES = 4;

/** What a decode iteration needs to know of its sequence. */
export interface DecodeContext {
  readonly id: number;
  readonly sequence: Sequence;
  readonly predictions: SequencePredictions;
  readonly feed: ShadowFeed;
  readonly counters: RequestCounters;
  readonly signal: AbortSignal;
  /** Null: not wanted. */
  readonly firstLayerAhead: FirstLayerAhead | null;
  readonly randomPrefetch: RandomPrefetch | null;
}

/** main's token at `position`, and drafts of the positions behind it. */
export interface DecodePass {
  position: number;
  tokenIds: readonly number[];
}

/**
 * One decode iteration (OD-MoE section 3.1) of one or more rows: the tokens through all layers, attention and gate here, experts on the
 * workers. Each expert that the rows of a layer activate is loaded and executed once, for all rows that chose it. Returns the logits of
 * every row (vocabSize each).
 */
export async function runDecodeIteration(
  engine: ClusterEngine,
  context: DecodeContext,
  slot: PassSlot,
  { position, tokenIds }: DecodePass,
): Promise<Float32Array[]> {
  const { layers, hiddenSize, expertsPerToken } = engine.shape;
  const rows = tokenIds.length;
  const positions = Int32Array.from(tokenIds, (_, row) => position + row);
  await slot.pass.begin([context.sequence], new Int32Array(rows), positions, Int32Array.from(tokenIds));
  const hidden = slot.hidden.subarray(0, rows * hiddenSize * FLOAT_BYTES);
  const outputs = slot.outputs.subarray(0, rows * expertsPerToken * hiddenSize * FLOAT_BYTES);
  const begunMs = engine.runtime.nowMs();
  let stallUs = 0;
  for (let layer = 0; layer < layers; layer++) {
    if (context.signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
    const choice = await slot.pass.attend(layer, hidden);
    const step = decideLayer(context, { hidden, outputs, position, layer }, choice, expertsPerToken);
    // The experts' messages leave first; while the workers compute, shadow gets this layer's rows.
    await settleAll([
      runLayerExperts(engine, context, step, (us) => (stallUs += us)),
      writtenForShadow(context.feed, layer, position + rows),
    ]);
    context.randomPrefetch?.layerDone(position, layer);
    await slot.pass.combine(layer, outputs, choice.weights);
  }
  engine.draftCosts.passed(rows, layers, Math.max(0, engine.runtime.nowMs() - begunMs - stallUs / 1000));
  context.counters.ioStallUs += stallUs;
  const logits = await slot.pass.logits(Int32Array.from(tokenIds.keys()));
  context.feed.passEnded();
  const { vocabSize } = engine.shape;
  return tokenIds.map((_, row) => logits.subarray(row * vocabSize, (row + 1) * vocabSize));
}

async function writtenForShadow(feed: ShadowFeed, layer: number, written: number): Promise<void> {
  feed.layerWritten(layer, written);
}

/** The buffers are the pass's: rows x hiddenSize, and rows x k x hiddenSize by rank, FP32. */
interface LayerBuffers {
  hidden: Uint8Array;
  outputs: Uint8Array;
  position: number;
  layer: number;
}

interface DecodeLayer extends LayerBuffers {
  activated: ReadonlyMap<number, readonly ActivatedRow[]>;
  prediction: Prediction | null;
}

function decideLayer(
  context: DecodeContext,
  buffers: LayerBuffers,
  choice: GateChoice,
  expertsPerToken: number,
): DecodeLayer {
  const activated = activatedExperts(choice.experts, expertsPerToken);
  const prediction = context.predictions.decide(buffers.position, buffers.layer, [...activated.keys()]);
  return { ...buffers, activated, prediction };
}

/** `onStall`: the longest that one of the layer's experts waited for its load. */
async function runLayerExperts(
  engine: ClusterEngine,
  context: DecodeContext,
  step: DecodeLayer,
  onStall: (stallUs: number) => void,
): Promise<void> {
  const { position, layer } = step;
  const placement = engine.roster.placement ?? (await engine.dispatcher.placement(context.signal));
  const predicted = toldByPrediction(placement, step.prediction);
  const told = layer === 0 ? mergeAhead(context, placement, position, predicted) : predicted;
  const match = matchExperts(placement, layer, told, [...step.activated.keys()], engine.spread);
  let longestStallUs = 0;
  const runs = match.assignments.map(async (assignment) => {
    const stallUs = await runExpert(engine, context, step, assignment);
    longestStallUs = Math.max(longestStallUs, stallUs);
  });
  releaseWrongOnes(engine, context.id, placement, step, match.releases);
  context.firstLayerAhead?.afterGate(position, context.predictions.upcoming(position, layer));
  await settleAll(runs);
  onStall(longestStallUs);
}

function mergeAhead(
  context: DecodeContext,
  placement: Placement,
  position: number,
  predicted: ReadonlyMap<number, string> | null,
): ReadonlyMap<number, string> | null {
  return context.firstLayerAhead?.merge(placement, position, predicted) ?? predicted;
}

/** Runs one expert on the rows that chose it and puts its outputs at their ranks; returns the time it waited for a load. */
async function runExpert(
  engine: ClusterEngine,
  context: DecodeContext,
  step: DecodeLayer,
  { expert, workerId, predicted }: ExpertAssignment,
): Promise<number> {
  const { hiddenSize, expertsPerToken } = engine.shape;
  const rowBytes = hiddenSize * FLOAT_BYTES;
  const { position, layer } = step;
  const rows = step.activated.get(expert) ?? [];
  const hidden = gatherExpertRows(step.hidden, rows, rowBytes);
  const { result, resent } = await engine.dispatcher.run(
    { sequence: context.id, position, layer, expert, rows: rows.length, hidden, last: true },
    workerId,
    context.signal,
  );
  if (resent || (!predicted && !result.wasLoaded)) context.counters.reloads += 1;
  scatterExpertOutputs(step.outputs, result.output, rows, expertsPerToken, rowBytes);
  return result.stallUs;
}

function releaseWrongOnes(
  engine: ClusterEngine,
  sequence: number,
  placement: Placement,
  step: DecodeLayer,
  releases: readonly { workerId: string; experts: number[] }[],
): void {
  const { position, layer } = step;
  for (const { workerId, experts } of releases) {
    engine.roster.worker(workerId)?.sendRelease({ epoch: placement.epoch, sequence, position, layer, experts });
  }
}
