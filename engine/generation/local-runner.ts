import type { RouterChoice, Model, Pass, Sequence } from '../../native/index.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { observeLogits, type PromptLogitsObserver } from './prompt-logprobs.js';
import type { BudgetReport } from '../../shared/decisions/slices/miss-budget.js';
import type { SequenceRunner } from './sequence-runner.js';

/**
 * Called with the experts that a layer's router chose for the token at `position`, by rank, when they are chosen. `scores`: of all experts, where
 * the passes answer them.
 */
export type ExpertObserver = (position: number, layer: number, experts: Int32Array, scores?: Float32Array) => void;

/** The rows of a pass: at positions [position, position + count). */
export interface PassRange {
  readonly position: number;
  readonly count: number;
}

/** The experts of one sequence's passes. */
export interface SequenceExperts {
  /** Routers of its passes answer all scores. */
  readonly needsAllScores: boolean;
  /** Called once, before the first pass. */
  promptBegins(tokens: number): void;
  /** The state of the constraint on misses of its logical cache; left out: it has none. */
  readonly report?: BudgetReport | null;
  /** Runs all layers of a pass that has begun. `onRouter`: as Pass.forward takes it. */
  forward(pass: Pass, rows: PassRange, onRouter: Parameters<Pass['forward']>[0]): Promise<void>;
}

const RESIDENT_EXPERTS: SequenceExperts = {
  needsAllScores: false,
  promptBegins: () => undefined,
  forward: async (pass, _rows, onRouter) => pass.forward(onRouter),
};

/** The model's own experts, with routers that answer all scores. */
export const RESIDENT_EXPERTS_WITH_SCORES: SequenceExperts = { ...RESIDENT_EXPERTS, needsAllScores: true };

/** One sequence of a model with all experts in memory: the single-process engine. */
export class LocalSequence implements SequenceRunner {
  readonly cache: Sequence;
  private readonly prefillPass: Pass;
  private readonly decodePass: Pass;

  constructor(
    model: Model,
    private readonly shape: ModelShape,
    private readonly prefillRows: number,
    private readonly onExperts: ExpertObserver | null,
    private readonly experts: SequenceExperts = RESIDENT_EXPERTS,
  ) {
    this.cache = model.createSequence();
    this.prefillPass = model.createPass(prefillRows, experts.needsAllScores);
    this.decodePass = model.createPass(1, experts.needsAllScores);
  }

  /** Runs in passes of prefillRows rows; the division of the prompt changes no bit of the result. */
  async prefill(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array> {
    let rows = 0;
    this.experts.promptBegins(tokenIds.length);
    for (let start = 0; start < tokenIds.length; start += rows) {
      const chunkIds = tokenIds.slice(start, start + this.prefillRows);
      rows = chunkIds.length;
      await this.forward(this.prefillPass, chunkIds);
      const observed = Math.min(rows, tokenIds.length - 1 - start);
      if (onLogits !== undefined) await observeLogits(this.prefillPass, observed, start, onLogits);
    }
    return this.prefillPass.logits(Int32Array.of(rows - 1));
  }

  async decode(tokenId: number): Promise<Float32Array> {
    await this.advance(tokenId);
    return this.decodePass.logits(Int32Array.of(0));
  }

  /** Runs one token only for its keys, values and experts: no logits. */
  async advance(tokenId: number): Promise<void> {
    await this.forward(this.decodePass, [tokenId]);
  }

  logicalCache(): BudgetReport | null {
    return this.experts.report ?? null;
  }

  async end(): Promise<void> {
    this.prefillPass.dispose();
    this.decodePass.dispose();
    this.cache.dispose();
  }

  private async forward(pass: Pass, tokenIds: readonly number[]): Promise<void> {
    const position = this.cache.length;
    const positions = Int32Array.from(tokenIds, (_, row) => position + row);
    await pass.begin([this.cache], new Int32Array(tokenIds.length), positions, Int32Array.from(tokenIds));
    const observer = this.onExperts;
    const onRouter =
      observer === null
        ? null
        : (layer: number, choice: RouterChoice): void => this.report(observer, position, layer, choice);
    await this.experts.forward(pass, { position, count: tokenIds.length }, onRouter);
  }

  private report(observer: ExpertObserver, firstPosition: number, layer: number, choice: RouterChoice): void {
    const { expertsPerToken: k, experts: all } = this.shape;
    for (let row = 0; row * k < choice.experts.length; row++) {
      const scores = choice.scores?.subarray(row * all, (row + 1) * all);
      observer(firstPosition + row, layer, choice.experts.subarray(row * k, (row + 1) * k), scores);
    }
  }
}

/** The single-process engine as a SequenceRunner. `prefillRows`: rows of one prompt pass. `experts`: left out where they are the model's own. */
export function createLocalRunner(
  model: Model,
  shape: ModelShape,
  prefillRows: number,
  onExperts: ExpertObserver | null = null,
  experts: SequenceExperts = RESIDENT_EXPERTS,
): SequenceRunner {
  return new LocalSequence(model, shape, prefillRows, onExperts, experts);
}
