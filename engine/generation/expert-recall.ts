import type { SepMetrics } from '../../shared/wire/messages.js';

/**
 * Counts how many activated experts were predicted, over the decode stage: recall of iteration n is correct over activated
 * experts in all its layers (OD-MoE eq. 2), recall the same over all iterations (eq. 3).
 */
export class ExpertRecall {
  private readonly correct: number[] = [];
  private readonly activated: number[] = [];
  private late = 0;

  /** One layer of decode iteration `iteration` (from 0): the activated experts, and how many of them were predicted. */
  add(iteration: number, activatedExperts: number, correctExperts: number): void {
    while (this.correct.length <= iteration) {
      this.correct.push(0);
      this.activated.push(0);
    }
    this.correct[iteration] = (this.correct[iteration] ?? 0) + correctExperts;
    this.activated[iteration] = (this.activated[iteration] ?? 0) + activatedExperts;
  }

  /** A prediction came after the router had decided. */
  addLate(): void {
    this.late++;
  }

  /** recall is 1 when no expert was activated at all. */
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
