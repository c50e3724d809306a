import { observeLogits, type PromptLogitsObserver } from '../../engine/generation/prompt-logprobs.js';
import type { RouterChoice, Sequence } from '../../native/index.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { workersForPrefillExpert } from '../../shared/placement/prefill-workers.js';
import { passOfSequence } from '../../shared/rpc/pass-rows.js';
import type { PassLayer } from '../../shared/rpc/messages.js';
import type { ExpertOutcome } from '../pass/expert-dispatcher.js';
import { takeOutput, type LayerStep, type WorkerShare } from '../pass/layer-step.js';
import { settleAll, type PassEngine, type RequestCounters } from '../pass/pass-engine.js';
import type { PassPool, PassSlot } from '../pass/pass-pool.js';
import { bundleBatches, planExpertBatches, splitLoadingRows, type ExpertBatch } from './expert-batches.js';
import { PrefillExpectations } from './prefill-expectations.js';

/** Mini-batches that a worker has at a time: it computes on one while the next is on the wire. */
export const BATCHES_IN_FLIGHT_PER_WORKER = 2;

const FLOAT_BYTES = 4;

/** What all prefills of a main share. */
export interface PrefillEngine extends PassEngine {
  /** Passes of prefillRows. */
  readonly prefillPasses: PassPool;
  readonly prefillRows: number;
  readonly miniBatchRows: number;
  readonly prefillOverlap: boolean;
}

export interface PrefillContext {
  readonly id: number;
  readonly sequence: Sequence;
  /** Is told when the cache of the layers up to an expert layer, or of all, is written up to a position. */
  readonly feed: { layerWritten(layer: number, written: number): void; allWritten(written: number): void };
  readonly counters: RequestCounters;
  readonly signal: AbortSignal;
  /** Is told how many of the prompt's tokens are done. */
  readonly onPrefill: (doneTokens: number) => void;
}

/**
 * Runs a prompt through the cluster in passes of prefillRows rows (OD-MoE section 3.3): a layer's experts are spread over all
 * workers, rows go to them by expert in mini-batches, and the next layer's experts load meanwhile where nearly all of them are
 * going to be used. Without prefillOverlap a layer is one step after another, as OD-MoE's own prefill times say that it was there: all
 * experts load, then rows go out and come back.
 * Returns the logits of the last row (vocabSize).
 */
export class PromptPrefill {
  private readonly expectations: PrefillExpectations;

  constructor(
    private readonly engine: PrefillEngine,
    private readonly context: PrefillContext,
  ) {
    this.expectations = new PrefillExpectations(engine.roster);
  }

  /** `onLogits`: wants the logits of the other rows, too. */
  run(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array> {
    return this.engine.prefillPasses.use(this.context.signal, (slot) => this.runPasses(slot, tokenIds, onLogits));
  }

  private async runPasses(
    slot: PassSlot,
    tokenIds: readonly number[],
    onLogits: PromptLogitsObserver | undefined,
  ): Promise<Float32Array> {
    const { prefillRows } = this.engine;
    await this.engine.dispatcher.placement(this.context.signal);
    const rowsFrom = (start: number): number => Math.min(prefillRows, tokenIds.length - start);
    const firstLayerAt = (start: number): PassLayer | null =>
      start < tokenIds.length ? { ...passOfSequence(this.context.id, start, rowsFrom(start)), layer: 0 } : null;
    this.announce(firstLayerAt(0));
    let rows = 0;
    this.context.onPrefill(0);
    for (let start = 0; start < tokenIds.length; start += rows) {
      rows = rowsFrom(start);
      await this.runPass(slot, tokenIds.slice(start, start + rows), start, firstLayerAt(start + rows));
      const observed = Math.min(rows, tokenIds.length - 1 - start);
      if (onLogits !== undefined) await observeLogits(slot.pass, observed, start, onLogits);
      this.context.onPrefill(start + rows);
    }
    return slot.pass.logits(Int32Array.of(rows - 1));
  }

  private announce(ahead: PassLayer | null): void {
    if (ahead !== null && this.engine.prefillOverlap) this.expectations.announce(ahead);
  }

  /** `nextPass`: the first layer of the pass that follows; null: none does. */
  private async runPass(
    slot: PassSlot,
    tokenIds: readonly number[],
    start: number,
    nextPass: PassLayer | null,
  ): Promise<void> {
    const { expertLayers, hiddenSize, expertsPerToken } = this.engine.shape;
    const rows = tokenIds.length;
    const place = passOfSequence(this.context.id, start, rows);
    const positions = Int32Array.from(tokenIds, (_, row) => start + row);
    await slot.pass.begin([this.context.sequence], new Int32Array(rows), positions, Int32Array.from(tokenIds));
    const hidden = slot.hidden.subarray(0, rows * hiddenSize * FLOAT_BYTES);
    const outputs = slot.outputs.subarray(0, rows * expertsPerToken * hiddenSize * FLOAT_BYTES);
    for (let layer = 0; layer < expertLayers; layer++) {
      if (this.context.signal.aborted) throw new OdmoeError('CANCELLED', 'the request was cancelled');
      const choice = await slot.pass.attend(layer, hidden);
      const ahead = layer + 1 < expertLayers ? { ...place, layer: layer + 1 } : nextPass;
      // The first batches leave first; then the workers learn of the next layer, and shadow gets this one's rows.
      await settleAll([
        this.runLayerExperts(choice, { ...place, layer, hidden, outputs }),
        this.whileExpertsRun(layer, start + rows, ahead),
      ]);
      await slot.pass.combine(layer, outputs, choice.weights);
    }
    this.context.feed.allWritten(start + rows);
  }

  private async whileExpertsRun(layer: number, written: number, ahead: PassLayer | null): Promise<void> {
    this.announce(ahead);
    this.context.feed.layerWritten(layer, written);
  }

  /** Sends the first batches before it returns its promise, when there is a placement. */
  private async runLayerExperts(choice: RouterChoice, step: LayerStep): Promise<void> {
    const { engine, context } = this;
    const placement = engine.roster.placement ?? (await engine.dispatcher.placement(context.signal));
    const plan = planExpertBatches(
      choice.experts,
      engine.shape.expertsPerToken,
      engine.shape.experts,
      engine.miniBatchRows,
      (expert) => workersForPrefillExpert(placement, step.layer, expert),
    );
    if (engine.prefillOverlap) {
      this.expectations.fulfil(placement, step, plan);
      return this.runLanes(plan.batches, step);
    }
    const { loading, rest } = splitLoadingRows(plan.batches);
    await this.runLanes(loading, step);
    return this.runLanes(rest, step);
  }

  /** All batches of a worker in order, those of different workers side by side. */
  private async runLanes(batches: readonly ExpertBatch[], step: LayerStep): Promise<void> {
    const lanes = [...bundleBatches(batches, this.engine.miniBatchRows).values()];
    const stalls = lanes.map(() => 0);
    await settleAll(
      lanes.flatMap((shares, lane) => {
        const queue = shares.values();
        const take = ({ task, result, resent }: ExpertOutcome): void => {
          stalls[lane] = Math.max(stalls[lane] ?? 0, result.stallUs);
          if (resent) this.context.counters.reloads += 1;
          takeOutput(step, task, result.output, this.engine.shape);
        };
        return Array.from({ length: BATCHES_IN_FLIGHT_PER_WORKER }, () => this.runShares(queue, step, take));
      }),
    );
    this.context.counters.ioStallUs += Math.max(0, ...stalls);
  }

  /** Runs shares of one worker one after another, from a queue that several of these share. */
  private async runShares(
    queue: Iterator<WorkerShare>,
    step: LayerStep,
    take: (outcome: ExpertOutcome) => void,
  ): Promise<void> {
    for (let next = queue.next(); next.done !== true; next = queue.next()) {
      await this.engine.dispatcher.run(step, next.value, this.context.signal, take);
    }
  }
}
