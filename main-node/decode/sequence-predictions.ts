import type { Prediction, SepMetrics } from '../../shared/rpc/messages.js';

/** Predictions that main has not come to yet; a shadow that is further ahead than this is not listened to. */
export const MAX_KEPT_PREDICTIONS = 8192;
/** Gate choices remembered for a prediction that comes late. */
export const MAX_REMEMBERED_CHOICES = 8192;

/** 'kept': main will look at it. 'late': main's gate has decided already. 'unusable': a second one, too far ahead or too old. */
export type PredictionArrival = 'kept' | 'late' | 'unusable';

/**
 * What shadow has predicted for one sequence, and how well: OD-MoE equations 2 (recall of iteration n) and 3 (recall), decode
 * stage only, by what was predicted, whether or not it came in time.
 */
export class SequencePredictions {
  private readonly kept = new Map<number, Prediction>();
  private readonly choices = new Map<number, readonly number[]>();
  private readonly correctByIteration: number[] = [];
  private readonly activatedByIteration: number[] = [];
  private late = 0;
  private lastDecided = -1;

  constructor(
    private readonly promptTokens: number,
    private readonly layers: number,
  ) {}

  arrive(prediction: Prediction): PredictionArrival {
    const place = this.place(prediction.position, prediction.layer);
    const choice = this.choices.get(place);
    if (choice !== undefined) {
      this.choices.delete(place);
      this.late += 1;
      this.count(prediction.position, prediction.experts, choice);
      return 'late';
    }
    const wanted = prediction.position >= this.promptTokens && place > this.lastDecided && !this.kept.has(place);
    if (!wanted || this.kept.size >= MAX_KEPT_PREDICTIONS) return 'unusable';
    this.kept.set(place, prediction);
    return 'kept';
  }

  /** main's gate has decided. Returns the prediction for this layer, if it has come. Layers come in rising order. */
  decide(position: number, layer: number, activated: readonly number[]): Prediction | null {
    const place = this.place(position, layer);
    this.lastDecided = place;
    const iteration = position - this.promptTokens;
    this.activatedByIteration[iteration] = (this.activatedByIteration[iteration] ?? 0) + activated.length;
    this.correctByIteration[iteration] ??= 0;
    const prediction = this.kept.get(place);
    if (prediction === undefined) {
      this.remember(place, activated);
      return null;
    }
    this.kept.delete(place);
    this.count(position, prediction.experts, activated);
    return prediction;
  }

  /** Takes out what main will not come to any more. */
  takeKept(): Prediction[] {
    const left = [...this.kept.values()];
    this.kept.clear();
    return left;
  }

  metrics(): SepMetrics {
    const activated = sum(this.activatedByIteration);
    const predictedCorrectly = sum(this.correctByIteration);
    return {
      recall: activated === 0 ? 0 : predictedCorrectly / activated,
      activated,
      predictedCorrectly,
      late: this.late,
      correctByIteration: [...this.correctByIteration],
      activatedByIteration: [...this.activatedByIteration],
    };
  }

  private place(position: number, layer: number): number {
    return position * this.layers + layer;
  }

  private count(position: number, predicted: readonly number[], activated: readonly number[]): void {
    const iteration = position - this.promptTokens;
    const correct = activated.filter((expert) => predicted.includes(expert)).length;
    this.correctByIteration[iteration] = (this.correctByIteration[iteration] ?? 0) + correct;
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

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
