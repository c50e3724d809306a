import type { SepMetrics } from '../../shared/wire/messages.js';

type IterationCounts = Pick<SepMetrics, 'activatedByIteration' | 'correctByIteration'>;

/** OD-MoE equation 2 for each iteration; null where no prompt had one. */
export function recallByIteration(metrics: IterationCounts): (number | null)[] {
  return metrics.activatedByIteration.map((_, index) => recallOver(metrics, index, index + 1));
}

/** Borders of the four quarters of `iterations`: five numbers from 0. */
export function quarterBorders(iterations: number): number[] {
  return [0, 1, 2, 3, 4].map((quarter) => Math.floor((quarter * iterations) / 4));
}

/** Recall in each quarter of the iterations; null where no prompt came so far. */
export function recallByQuarter(metrics: IterationCounts, iterations: number): (number | null)[] {
  const borders = quarterBorders(iterations);
  return borders.slice(1).map((end, quarter) => recallOver(metrics, borders[quarter] ?? 0, end));
}

/**
 * Recall by iteration n (from 1), each over the `window` iterations around n, fewer at the ends: equation 3 over that stretch. Empty
 * where no iteration was run.
 */
export function smoothedRecall(metrics: IterationCounts, window: number): { x: number; y: number }[] {
  const before = Math.floor((window - 1) / 2);
  return metrics.activatedByIteration.flatMap((_, index) => {
    const recall = recallOver(metrics, Math.max(0, index - before), index - before + window);
    return recall === null ? [] : [{ x: index + 1, y: recall }];
  });
}

/** Over the iterations from `from` to before `end`. */
function recallOver(
  { activatedByIteration, correctByIteration }: IterationCounts,
  from: number,
  end: number,
): number | null {
  const activated = sum(activatedByIteration.slice(from, end));
  return activated === 0 ? null : sum(correctByIteration.slice(from, end)) / activated;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}
