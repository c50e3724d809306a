import type { Calibration } from '../../engine/planning/calibrate.js';
import type { FormRecall } from '../../shared/decisions/slices/choose-shadow-form.js';

/** The result of a calibration when a model was packed. `theta`: null where the slices had thresholds before, or there are no slices. */
export type Measurements =
  | (Omit<Calibration, 'theta'> & { readonly theta: Calibration['theta'] | null })
  | { readonly problem: string };

/** The lines that `odmoe pack` prints about its measurements. Pure. `again`: the command that measures what is missing. */
export function measurementLines(measured: Measurements, again: string): string[] {
  if ('problem' in measured) {
    return [`  nothing was measured with the model: ${measured.problem}; measure later with "${again}"`];
  }
  const { theta, recall, from, tokens } = measured;
  const ran = `${tokens} ${from === 'text' ? 'tokens of text' : 'random tokens, as the model has no tokenizer'}`;
  return [
    ...(theta === null ? [] : [`  measured ${theta.length} thresholds of critical executions with ${ran}`]),
    ...(recall === null ? [] : [`  measured the recall of shadows with ${ran}:`, ...recallLines(recall)]),
  ];
}

/** A line for each form of a shadow, the one that predicts best first. */
export function recallLines(recall: readonly FormRecall[]): string[] {
  const best = [...recall].sort((left, right) => right.recall - left.recall);
  return best.map((form) => `              ${form.precision.padEnd(16)}${form.recall.toFixed(4)}`);
}
