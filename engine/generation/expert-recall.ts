import type { SepMetrics } from '../../shared/wire/messages.js';

/**
 * Counts the predicted ones among the activated experts of the decode stage. Recall of iteration n: correct over activated experts in all
 * layers of the iteration (OD-MoE eq. 2). Recall: the same over all iterations (eq. 3).
 */
export class ExpertRecall {
  private readonly correct: number[] = [];
  private readonly activated: number[] = [];
  private late = 0;

  /** Adds one layer of decode iteration `iteration` (from 0): the number of activated experts, and how many of them were predicted. */
  add(iteration: number, activatedExperts: number, correctExperts: number): void {
    while (this.correct.length <= iteration) {
      this.correct.push(0);
      this.activated.push(0);
    }
    this.correct[iteration] = (this.correct[iteration] ?? 0) + correctExperts;
    this.activated[iteration] = (this.activated[iteration] ?? 0) + activatedExperts;
  }

  /** Counts a prediction that came after the router had chosen. */
  addLate(): void {
    this.late++;
  }

  /** recall is 1 when no expert was activated. */
  result(): SepMetrics {
    const activated = this.activated.reduce((sum, count) => sum + count, 0);
    const predictedCorrectly = this.correct.reduce((sum, count) => sum + count, 0);
    return {
      recall: activated === 0 ? 1 : predictedCorrectly / activated,
      activated,
      predictedCorrectly,
      late: this.late,
      correctByIteration: [...this.correct],
      activatedByIteration: [...this.activated],
    };
  }
}
