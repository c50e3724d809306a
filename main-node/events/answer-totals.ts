import type { RecallView } from '../../shared/wire/cluster-events.js';
import type { SepMetrics } from '../../shared/wire/messages.js';
import type { AnswerCost } from '../decode/cluster-sequence.js';
import type { AnswerCosts } from '../rpc/request-observer.js';

/** Most iterations of an answer for which recall is reported. */
export const MAX_RECALL_ITERATIONS = 1024;

/** Counts over all answers since main's start. */
export interface AnswerCounts {
  /** Experts that were activated in answers with predictions, and those of them that had been predicted. */
  activated: number;
  predicted: number;
  reloads: number;
  draftsRun: number;
  draftsRight: number;
}

const NOTHING: AnswerCounts = { activated: 0, predicted: 0, reloads: 0, draftsRun: 0, draftsRight: 0 };

/** The costs of all answers together: of those that have ended and of those that are being made. */
export class AnswerTotals {
  private readonly running = new Set<AnswerCosts>();
  private ended = NOTHING;
  private readonly endedRecall: RecallView = { correct: [], activated: [] };

  begun(source: AnswerCosts): void {
    this.running.add(source);
  }

  /** The answer is freed, and has no further costs. */
  answered(source: AnswerCosts): void {
    if (!this.running.delete(source)) return;
    this.ended = sumOf(this.ended, countsOf(source.cost()));
    addRecall(this.endedRecall, source.sepMetrics());
  }

  counts(): AnswerCounts {
    return [...this.running].reduce((sum, source) => sumOf(sum, countsOf(source.cost())), this.ended);
  }

  /** Recall of each iteration (OD-MoE equation 2). */
  recall(): RecallView {
    const { correct, activated } = this.endedRecall;
    const recall = { correct: [...correct], activated: [...activated] };
    for (const source of this.running) addRecall(recall, source.sepMetrics());
    return recall;
  }
}

function countsOf({ activations, reloads, drafts }: AnswerCost): AnswerCounts {
  const { inTime, late, missed } = activations;
  return {
    activated: inTime + late + missed,
    predicted: inTime + late,
    reloads,
    draftsRun: drafts?.proposed ?? 0,
    draftsRight: drafts?.accepted ?? 0,
  };
}

function sumOf(left: AnswerCounts, right: AnswerCounts): AnswerCounts {
  return {
    activated: left.activated + right.activated,
    predicted: left.predicted + right.predicted,
    reloads: left.reloads + right.reloads,
    draftsRun: left.draftsRun + right.draftsRun,
    draftsRight: left.draftsRight + right.draftsRight,
  };
}

function addRecall({ correct, activated }: RecallView, metrics: SepMetrics | null): void {
  if (metrics === null) return;
  const iterations = Math.min(MAX_RECALL_ITERATIONS, metrics.activatedByIteration.length);
  for (let iteration = 0; iteration < iterations; iteration++) {
    correct[iteration] = (correct[iteration] ?? 0) + (metrics.correctByIteration[iteration] ?? 0);
    activated[iteration] = (activated[iteration] ?? 0) + (metrics.activatedByIteration[iteration] ?? 0);
  }
}
