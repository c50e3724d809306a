import type { Model } from '../../native/index.js';
import { isRecurrent, type ModelShape } from '../../shared/model/model-shape.js';
import type { SepMetrics } from '../../shared/wire/messages.js';
import { ExpertRecall } from './expert-recall.js';
import { LocalSequence, type ExpertObserver } from './local-runner.js';
import type { PromptLogitsObserver } from './prompt-logprobs.js';
import type { SequenceRunner } from './sequence-runner.js';

/**
 * A model and a quantized shadow of it in one process, to measure the shadow's predictions (scaled emulative prediction, OD-MoE section 3.2).
 * The shadow is aligned after the prompt and at every iteration: it runs the model's tokens on the model's keys and values. It does not change
 * the model's results.
 */
export class ShadowedRunner implements SequenceRunner {
  private readonly recall = new ExpertRecall();
  private readonly main: LocalSequence;
  private readonly shadow: LocalSequence;
  /** Experts of the current iteration, by layer. */
  private activated: number[][] = [];
  private predicted: number[][] = [];
  private iteration = 0;

  constructor(
    model: Model,
    shadowModel: Model,
    private readonly shape: ModelShape,
    prefillRows: number,
    onExperts: ExpertObserver | null = null,
  ) {
    this.main = new LocalSequence(model, shape, prefillRows, (position, layer, experts) => {
      this.activated[layer] = [...experts];
      onExperts?.(position, layer, experts);
    });
    this.shadow = new LocalSequence(shadowModel, shape, prefillRows, (_position, layer, experts) => {
      this.predicted[layer] = [...experts];
    });
  }

  /** Metrics of the decode iterations so far. */
  get sep(): SepMetrics {
    return this.recall.result();
  }

  async prefill(tokenIds: readonly number[], onLogits?: PromptLogitsObserver): Promise<Float32Array> {
    await this.shadow.prefill(tokenIds);
    const logits = await this.main.prefill(tokenIds, onLogits);
    this.alignRows(0, tokenIds.length);
    return logits;
  }

  async decode(tokenId: number): Promise<Float32Array> {
    const position = this.main.cache.length;
    this.activated = [];
    this.predicted = [];
    await this.shadow.advance(tokenId);
    const logits = await this.main.decode(tokenId);
    this.countRecall();
    this.alignRows(position, 1);
    return logits;
  }

  async end(): Promise<void> {
    await this.main.end();
    await this.shadow.end();
  }

  private countRecall(): void {
    for (const [layer, activated] of this.activated.entries()) {
      const correct = activated.filter((expert) => this.predicted[layer]?.includes(expert)).length;
      this.recall.add(this.iteration, activated.length, correct);
    }
    this.iteration++;
  }

  private alignRows(position: number, rows: number): void {
    const end = position + rows;
    const oldest = Math.max(this.main.cache.oldestPosition, this.shadow.cache.oldestPosition);
    for (const [layer, { mixer }] of this.shape.layers.entries()) {
      const from = isRecurrent(mixer) ? Math.min(end, Math.max(position, oldest)) : position;
      if (from === end) continue;
      this.shadow.cache.writeRows(layer, from, end - from, this.main.cache.readRows(layer, from, end - from));
    }
  }
}
