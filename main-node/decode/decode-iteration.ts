import type { RouterChoice, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { requirePresent } from '../../shared/errors/assert-invariant.js';
import { type ExpertAssignment, matchExperts } from '../../shared/placement/match-experts.js';
import { passOfSequence } from '../../shared/rpc/pass-rows.js';
import type { Placement, Prediction } from '../../shared/rpc/messages.js';
import { activatedExperts, type ActivatedRow } from '../pass/activated-experts.js';
import type { ExpertOutcome } from '../pass/expert-dispatcher.js';
import { takeOutput, type LayerStep, type WorkerShare } from '../pass/layer-step.js';
import { settleAll, type RequestCounters } from '../pass/pass-engine.js';
import type { PassSlot } from '../pass/pass-pool.js';
import type { ClusterEngine } from './cluster-engine.js';
import type { FirstLayerAhead } from './first-layer-ahead.js';
import type { RandomPrefetch } from './random-prefetch.js';
import type { RouterAhead } from './router-ahead.js';
import type { SequencePredictions } from './sequence-predictions.js';
import type { ShadowFeed } from './shadow-feed.js';
import { toldByPrediction } from './told-by-prediction.js';

const FLOAT_BYTES = 4;
const NOTHING_TO_DO = Promise.resolve();

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
  readonly routerAhead: RouterAhead | null;
}

/** main's token at `position`, and drafts of the positions behind it. */
export interface DecodeRows {
  position: number;
  tokenIds: readonly number[];
}

/**
 * One decode iteration (OD-MoE section 3.1) of one or more rows: the tokens through all layers, attention and router here, experts on the
 * workers. Each expert that the rows of a layer activate is loaded and executed once, for all rows that chose it. Returns the logits of
 * every row (vocabSize each).
 */
export async function runDecodeIteration(
  engine: ClusterEngine,
  context: DecodeContext,
  slot: PassSlot,
  { position, tokenIds }: DecodeRows,
): Promise<Float32Array[]> {
  const { expertLayers, hiddenSize, expertsPerToken } = engine.shape;
  const rows = tokenIds.length;
  const positions = Int32Array.from(tokenIds, (_, row) => position + row);
  await slot.pass.begin([context.sequence], new Int32Array(rows), positions, Int32Array.from(tokenIds));
  const hidden = slot.hidden.subarray(0, rows * hiddenSize * FLOAT_BYTES);
  const outputs = slot.outputs.subarray(0, rows * expertsPerToken * hiddenSize * FLOAT_BYTES);
  const place = passOfSequence(context.id, position, rows);
  const begunMs = engine.runtime.nowMs();
  let stallUs = 0;
  for (let layer = 0; layer < expertLayers; layer++) {
    if (context.signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
    const choice = await slot.pass.attend(layer, hidden);
    const step = decideLayer(context, { ...place, layer, hidden, outputs }, choice, expertsPerToken);
    // The experts' messages leave first; while the workers compute, routers further on are asked, and shadow gets this layer's rows.
    await settleAll([
      runLayerExperts(engine, context, step, (us) => (stallUs += us)),
      context.routerAhead?.routerHasChosen(slot.pass, step) ?? NOTHING_TO_DO,
      writtenForShadow(context.feed, layer, position + rows),
    ]);
    context.randomPrefetch?.layerDone(position, layer);
    await slot.pass.combine(layer, outputs, choice.weights);
  }
  context.feed.allWritten(position + rows);
  engine.draftCosts.passed(rows, expertLayers, Math.max(0, engine.runtime.nowMs() - begunMs - stallUs / 1000));
  context.counters.ioStallUs += stallUs;
  const logits = await slot.pass.logits(Int32Array.from(tokenIds.keys()));
  context.feed.passEnded();
  const { vocabSize } = engine.shape;
  return tokenIds.map((_, row) => logits.subarray(row * vocabSize, (row + 1) * vocabSize));
}

async function writtenForShadow(feed: ShadowFeed, layer: number, written: number): Promise<void> {
  feed.layerWritten(layer, written);
}

interface DecodeLayer extends LayerStep {
  activated: ReadonlyMap<number, readonly ActivatedRow[]>;
  prediction: Prediction | null;
}

function decideLayer(
  context: DecodeContext,
  step: LayerStep,
  choice: RouterChoice,
  expertsPerToken: number,
): DecodeLayer {
  const activated = activatedExperts(choice.experts, expertsPerToken);
  const prediction = context.predictions.decide(step.pass.position, step.layer, [...activated.keys()]);
  return { ...step, activated, prediction };
}

/** `onStall`: the longest that one of the layer's experts waited for its load. */
async function runLayerExperts(
  engine: ClusterEngine,
  context: DecodeContext,
  step: DecodeLayer,
  onStall: (stallUs: number) => void,
): Promise<void> {
  const { layer } = step;
  const { position } = step.pass;
  const placement = engine.roster.placement ?? (await engine.dispatcher.placement(context.signal));
  const predicted = toldByPrediction(placement, step.prediction);
  const told = layer === 0 ? mergeAhead(context, placement, position, predicted) : predicted;
  const match = matchExperts(placement, layer, told, [...step.activated.keys()], engine.spread);
  const foreseen = new Set(match.assignments.flatMap(({ expert, predicted }) => (predicted ? [expert] : [])));
  const race = engine.layerWaits.begin(layer, engine.runtime.nowMs());
  const take = ({ task, workerId, result, resent }: ExpertOutcome): void => {
    race.take(workerId, result, engine.runtime.nowMs());
    race.disturbed ||= resent;
    if (resent || (!foreseen.has(task.expert) && !result.wasLoaded)) context.counters.reloads += 1;
    takeOutput(step, task, result.output, engine.shape);
  };
  const shares = sharesOf(step, match.assignments);
  const runs = shares.map((share) => engine.dispatcher.run(step, share, context.signal, take));
  releaseWrongOnes(engine, placement, step, match.releases);
  context.firstLayerAhead?.afterRouter(position, context.predictions.upcoming(position, layer));
  await settleAll(runs);
  onStall(race.longestStallUs);
  engine.layerWaits.end(race);
}

function mergeAhead(
  context: DecodeContext,
  placement: Placement,
  position: number,
  predicted: ReadonlyMap<number, string> | null,
): ReadonlyMap<number, string> | null {
  return context.firstLayerAhead?.merge(placement, position, predicted) ?? predicted;
}

/** Each worker's experts, with the rows that chose them. */
function sharesOf(step: DecodeLayer, assignments: readonly ExpertAssignment[]): WorkerShare[] {
  const byWorker = new Map<string, WorkerShare['tasks']>();
  for (const { expert, workerId } of assignments) {
    const rows = requirePresent(step.activated.get(expert), 'an expert that is assigned to a worker was activated.');
    byWorker.set(workerId, [...(byWorker.get(workerId) ?? []), { expert, rows, last: true }]);
  }
  return [...byWorker].map(([workerId, tasks]) => ({ workerId, tasks }));
}

function releaseWrongOnes(
  engine: ClusterEngine,
  { epoch }: Placement,
  { pass, rows, layer }: DecodeLayer,
  releases: readonly { workerId: string; experts: number[] }[],
): void {
  for (const { workerId, experts } of releases) {
    engine.roster.worker(workerId)?.sendRelease({ epoch, pass, rows, layer, experts });
  }
}
