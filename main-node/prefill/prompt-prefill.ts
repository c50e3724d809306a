import type { GateChoice, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/index.js';
import { workersForPrefillExpert } from '../../shared/placement/index.js';
import { settleAll, type ClusterEngine, type RequestCounters } from '../decode/cluster-engine.js';
import { gatherExpertRows, scatterExpertOutputs } from '../decode/expert-rows.js';
import type { PassSlot } from '../decode/pass-pool.js';
import type { ShadowFeed } from '../decode/shadow-feed.js';
import { planExpertBatches, splitLoadingRows, type ExpertBatch } from './expert-batches.js';
import { PrefillExpectations } from './prefill-expectations.js';

/** Mini-batches that a worker has at a time: it computes on one while the next is on the wire. */
export const BATCHES_IN_FLIGHT_PER_WORKER = 2;

const FLOAT_BYTES = 4;

export interface PrefillContext {
  readonly id: number;
  readonly sequence: Sequence;
  readonly feed: ShadowFeed;
  readonly counters: RequestCounters;
  readonly signal: AbortSignal;
}

/**
 * Runs a prompt through the cluster in passes of prefillRows rows (OD-MoE section 3.3): a layer's experts are spread over all
 * workers, rows go to them by expert in mini-batches, and the next layer's experts load meanwhile. Without prefillOverlap a layer is
 * one step after another, as OD-MoE's own prefill times say that it was there: all experts load, then rows go out and come back.
 * Returns the logits of the last row (vocabSize).
 */
export class PromptPrefill {
  private readonly expectations: PrefillExpectations;

  constructor(
    private readonly engine: ClusterEngine,
    private readonly context: PrefillContext,
  ) {
    this.expectations = new PrefillExpectations(context.id, engine.roster);
  }

  run(tokenIds: readonly number[]): Promise<Float32Array> {
    return this.engine.prefillPasses.use(this.context.signal, (slot) => this.runPasses(slot, tokenIds));
  }

  private async runPasses(slot: PassSlot, tokenIds: readonly number[]): Promise<Float32Array> {
    const { prefillRows } = this.engine;
    await this.engine.dispatcher.placement(this.context.signal);
    if (this.engine.prefillOverlap) this.expectations.announce(Math.min(prefillRows, tokenIds.length) - 1, 0);
    let rows = 0;
    for (let start = 0; start < tokenIds.length; start += prefillRows) {
      const end = Math.min(start + prefillRows, tokenIds.length);
      const nextEnd = Math.min(end + prefillRows, tokenIds.length);
      await this.runPass(slot, tokenIds.slice(start, end), start, nextEnd > end ? nextEnd - 1 : null);
      rows = end - start;
    }
    return slot.pass.logits(Int32Array.of(rows - 1));
  }

  /** `nextPosition`: last position of the pass that follows; null: none does. */
  private async runPass(
    slot: PassSlot,
    tokenIds: readonly number[],
    start: number,
    nextPosition: number | null,
  ): Promise<void> {
    const { layers, hiddenSize, expertsPerToken } = this.engine.shape;
    const rows = tokenIds.length;
    const position = start + rows - 1;
    const positions = Int32Array.from(tokenIds, (_, row) => start + row);
    await slot.pass.begin([this.context.sequence], new Int32Array(rows), positions, Int32Array.from(tokenIds));
    const hidden = slot.hidden.subarray(0, rows * hiddenSize * FLOAT_BYTES);
    const outputs = slot.outputs.subarray(0, rows * expertsPerToken * hiddenSize * FLOAT_BYTES);
    for (let layer = 0; layer < layers; layer++) {
      if (this.context.signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
      const choice = await slot.pass.attend(layer, hidden);
      const next = layer + 1 < layers ? { position, layer: layer + 1 } : { position: nextPosition, layer: 0 };
      // The first batches leave first; then the workers learn of the next layer, and shadow gets this one's rows.
      await settleAll([
        this.runLayerExperts(choice, { hidden, outputs, position, layer }),
        this.whileExpertsRun(layer, position, next),
      ]);
      await slot.pass.combine(layer, outputs, choice.weights);
    }
  }

  private async whileExpertsRun(
    layer: number,
    position: number,
    next: { position: number | null; layer: number },
  ): Promise<void> {
    if (next.position !== null && this.engine.prefillOverlap) this.expectations.announce(next.position, next.layer);
    this.context.feed.layerWritten(layer, position + 1);
  }

  /** Sends the first batches before it returns its promise, when there is a placement. */
  private async runLayerExperts(choice: GateChoice, step: PrefillLayer): Promise<void> {
    const { engine, context } = this;
    const placement = engine.roster.placement ?? (await engine.dispatcher.placement(context.signal));
    const plan = planExpertBatches(
      choice.experts,
      engine.shape.expertsPerToken,
      engine.shape.experts,
      engine.miniBatchRows,
      (expert) => workersForPrefillExpert(placement, step.layer, expert),
    );
    this.expectations.fulfil(placement, step.position, step.layer, plan.unused);
    if (engine.prefillOverlap) return this.runLanes(plan.batches, step);
    const { loading, rest } = splitLoadingRows(plan.batches);
    await this.runLanes(loading, step);
    return this.runLanes(rest, step);
  }

  /** All batches of a worker in order, those of different workers side by side. */
  private async runLanes(batches: readonly ExpertBatch[], step: PrefillLayer): Promise<void> {
    const lanes = new Map<string, ExpertBatch[]>();
    for (const batch of batches) lanes.set(batch.workerId, [...(lanes.get(batch.workerId) ?? []), batch]);
    const stalls = [...lanes.values()].map(() => 0);
    await settleAll(
      [...lanes.values()].flatMap((queued, lane) => {
        const queue = queued.values();
        const take = (stallUs: number): void => {
          stalls[lane] = Math.max(stalls[lane] ?? 0, stallUs);
        };
        return Array.from({ length: BATCHES_IN_FLIGHT_PER_WORKER }, () => this.runBatches(queue, step, take));
      }),
    );
    this.context.counters.ioStallUs += Math.max(0, ...stalls);
  }

  /** Runs batches of one worker one after another, from a queue that several of these share. */
  private async runBatches(
    queue: Iterator<ExpertBatch>,
    step: PrefillLayer,
    onStall: (stallUs: number) => void,
  ): Promise<void> {
    for (let next = queue.next(); next.done !== true; next = queue.next()) {
      onStall(await this.runBatch(next.value, step));
    }
  }

  private async runBatch(batch: ExpertBatch, step: PrefillLayer): Promise<number> {
    const { engine, context } = this;
    const rowBytes = engine.shape.hiddenSize * FLOAT_BYTES;
    const hidden = gatherExpertRows(step.hidden, batch.rows, rowBytes);
    const { position, layer } = step;
    const { expert, workerId, last } = batch;
    const work = { sequence: context.id, position, layer, expert, rows: batch.rows.length, hidden, last };
    const { result, resent } = await engine.dispatcher.run(work, workerId, context.signal);
    if (resent) context.counters.reloads += 1;
    scatterExpertOutputs(step.outputs, result.output, batch.rows, engine.shape.expertsPerToken, rowBytes);
    return result.stallUs;
  }
}

interface PrefillLayer {
  /** rows x hiddenSize FP32. */
  hidden: Uint8Array;
  /** rows x k x hiddenSize FP32, by rank. */
  outputs: Uint8Array;
  position: number;
  layer: number;
}
