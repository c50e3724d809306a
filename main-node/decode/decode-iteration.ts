import type { Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import { matchExperts, type ExpertAssignment } from '../../shared/placement/index.js';
import type { Placement, Prediction } from '../../shared/rpc/messages.js';
import { settleAll, type ClusterEngine, type RequestCounters } from './cluster-engine.js';
import type { PassSlot } from './pass-pool.js';
import type { SequencePredictions } from './sequence-predictions.js';
import type { ShadowFeed } from './shadow-feed.js';

const FLOAT_BYTES = 4;
const ROW_ZERO = Int32Array.of(0);

/** What a decode iteration needs to know of its sequence. */
export interface DecodeContext {
  readonly id: number;
  readonly sequence: Sequence;
  readonly predictions: SequencePredictions;
  readonly feed: ShadowFeed;
  readonly counters: RequestCounters;
  readonly signal: AbortSignal;
}

/**
 * One decode iteration (OD-MoE section 3.1): the token at `position` through all layers, attention and gate here, experts on the
 * workers of each layer's group. Returns the logits (vocabSize).
 */
export async function runDecodeIteration(
  engine: ClusterEngine,
  context: DecodeContext,
  slot: PassSlot,
  position: number,
  tokenId: number,
): Promise<Float32Array> {
  await slot.pass.begin([context.sequence], ROW_ZERO, Int32Array.of(position), Int32Array.of(tokenId));
  for (let layer = 0; layer < engine.shape.layers; layer++) {
    if (context.signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
    const choice = await slot.pass.attend(layer, slot.hidden);
    const activated = Array.from(choice.experts);
    const prediction = context.predictions.decide(position, layer, activated);
    // The experts' messages leave first; while the workers compute, shadow gets this layer's rows.
    await settleAll([
      runLayerExperts(engine, context, slot, { position, layer, activated, prediction }),
      writtenForShadow(context.feed, layer, position + 1),
    ]);
    await slot.pass.combine(layer, slot.outputs, choice.weights);
  }
  return slot.pass.logits(ROW_ZERO);
}

async function writtenForShadow(feed: ShadowFeed, layer: number, written: number): Promise<void> {
  feed.layerWritten(layer, written);
}

interface DecodeLayer {
  position: number;
  layer: number;
  /** By rank. */
  activated: readonly number[];
  prediction: Prediction | null;
}

async function runLayerExperts(
  engine: ClusterEngine,
  context: DecodeContext,
  slot: PassSlot,
  step: DecodeLayer,
): Promise<void> {
  const placement = engine.roster.placement ?? (await engine.dispatcher.placement(context.signal));
  // What shadow predicted under another placement, the workers have forgotten.
  const inForce = step.prediction?.epoch === placement.epoch ? step.prediction.experts : null;
  const match = matchExperts(placement, step.layer, inForce, step.activated);
  let longestStallUs = 0;
  const runs = match.assignments.map(async (assignment, rank) => {
    const stallUs = await runExpert(engine, context, slot, step, assignment, rank);
    longestStallUs = Math.max(longestStallUs, stallUs);
  });
  releaseWrongOnes(engine, context.id, placement, step, match.releases);
  await settleAll(runs);
  context.counters.ioStallUs += longestStallUs;
}

/** Runs one expert and puts its output at its rank; returns the time it waited for a load. */
async function runExpert(
  engine: ClusterEngine,
  context: DecodeContext,
  slot: PassSlot,
  step: DecodeLayer,
  assignment: ExpertAssignment,
  rank: number,
): Promise<number> {
  const rowBytes = engine.shape.hiddenSize * FLOAT_BYTES;
  const { position, layer } = step;
  const { result, resent } = await engine.dispatcher.run(
    { sequence: context.id, position, layer, expert: assignment.expert, rows: 1, hidden: slot.hidden, last: true },
    assignment.workerId,
    context.signal,
  );
  if (resent || (!assignment.predicted && !result.wasLoaded)) context.counters.reloads += 1;
  slot.outputs.set(result.output, rank * rowBytes);
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
