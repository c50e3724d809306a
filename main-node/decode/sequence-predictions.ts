import { ExpertRecall } from '../../engine/generation/expert-recall.js';
import type { Prediction, SepMetrics } from '../../shared/rpc/messages.js';

/** Predictions that main has not come to yet; a shadow that is further ahead than this is not listened to. */
export const MAX_KEPT_PREDICTIONS = 8192;
/** Gate choices remembered for a prediction that comes late. */
export const MAX_REMEMBERED_CHOICES = 8192;

/** 'kept': main will look at it. 'late': main's gate has decided already. 'ignored': of the prompt, or too far ahead. */
export type PredictionArrival = 'kept' | 'late' | 'ignored';

/**
 * What shadow has predicted for one sequence, and how well: OD-MoE equations 2 (recall of iteration n) and 3 (recall), decode
 * stage only, by what was predicted, whether or not it came in time.
 */
export class SequencePredictions {
  private readonly kept = new Map<number, Prediction>();
  private readonly choices = new Map<number, readonly number[]>();
  private readonly recall = new ExpertRecall();
  private lastDecided = -1;
  private onCaughtUp: (() => void) | null = null;

  constructor(
    private readonly promptTokens: number,
    private readonly layers: number,
  ) {}

  /** A later prediction for the same layer replaces an earlier one, as it does at the workers. */
  arrive(prediction: Prediction): PredictionArrival {
    if (prediction.position < this.promptTokens) return 'ignored';
    const place = this.place(prediction.position, prediction.layer);
    if (place <= this.lastDecided) {
      this.countLate(place, prediction);
      if (this.caughtUp) this.onCaughtUp?.();
      return 'late';
    }
    if (this.kept.size >= MAX_KEPT_PREDICTIONS && !this.kept.has(place)) return 'ignored';
    this.kept.set(place, prediction);
    return 'kept';
  }

  /** main's gate has decided. Returns the prediction for this layer, if it has come. Layers come in rising order. */
  decide(position: number, layer: number, activated: readonly number[]): Prediction | null {
    const place = this.place(position, layer);
    this.lastDecided = place;
    this.recall.add(position - this.promptTokens, activated.length, 0);
    const prediction = this.kept.get(place);
    if (prediction === undefined) {
      this.remember(place, activated);
      return null;
    }
    this.kept.delete(place);
    this.count(position, prediction.experts, activated);
    return prediction;
  }

  /** Resolves when the prediction for the last layer decided has come, or after limitMs. Shadow predicts in main's order. */
  async waitUntilCaughtUp(limitMs: number): Promise<void> {
    if (this.caughtUp) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, limitMs);
      this.onCaughtUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.onCaughtUp = null;
  }

  private get caughtUp(): boolean {
    return !this.choices.has(this.lastDecided);
  }

  metrics(): SepMetrics {
    return this.recall.result();
  }

  private place(position: number, layer: number): number {
    return position * this.layers + layer;
  }

  /** Once per layer, and only where no earlier prediction has been counted. */
  private countLate(place: number, prediction: Prediction): void {
    const choice = this.choices.get(place);
    if (choice === undefined) return;
    this.choices.delete(place);
    this.recall.addLate();
    this.count(prediction.position, prediction.experts, choice);
  }

  private count(position: number, predicted: readonly number[], activated: readonly number[]): void {
    const correct = activated.filter((expert) => predicted.includes(expert)).length;
    this.recall.add(position - this.promptTokens, 0, correct);
  }

  private remember(place: number, activated: readonly number[]): void {
    this.choices.set(place, activated);
    if (this.choices.size <= MAX_REMEMBERED_CHOICES) return;
    for (const oldest of this.choices.keys()) {
      this.choices.delete(oldest);
      return;
    }
  }
}
