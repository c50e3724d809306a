/** The form of a shadow under `shadow.precision: auto`. Predictions change speed, never tokens, so a wrong choice costs time only. */
import { formatByteSize } from '../../base/text/byte-size.js';
import { requirePresent } from '../../base/errors/assert-invariant.js';
import { SLICED_PRECISIONS, type ShadowPrecision } from '../../settings/setting-choices.js';

/** Forms that are chosen from. FP16 is none: a shadow reads all of its weights for a token, and would take twice as long for them. */
export const AUTO_PRECISIONS = ['int8', 'nf4', ...SLICED_PRECISIONS] as const satisfies readonly ShadowPrecision[];
export type AutoPrecision = (typeof AUTO_PRECISIONS)[number];

/** The recall of a shadow of this form, as it was measured with the model. */
export interface FormRecall {
  readonly precision: AutoPrecision;
  readonly recall: number;
}

export interface ShadowCandidate {
  readonly precision: ShadowPrecision;
  /** Memory of all of the shadow's weights. */
  readonly bytes: number;
  /** Null: not measured. */
  readonly recall: number | null;
}

export interface ShadowChoice {
  readonly precision: ShadowPrecision;
  readonly reason: string;
}

/** The share of a shadow's memory that weights may take. The rest is for keys and values, and for passes. */
const WEIGHTS_SHARE = 0.9;

/** Recalls that differ by less are taken as equal: a measurement of some hundred tokens tells no more. Then the fewer bytes are read faster. */
const RECALL_TOLERANCE = 0.001;

/**
 * Chooses the candidate that fits and predicts best, and the smallest of those that predict equally well. Candidates without a recall are chosen only
 * if none that fits has one: then the largest. If none fits, the smallest. `memoryBytes`: all that the shadow may take.
 */
export function chooseShadowPrecision(candidates: readonly ShadowCandidate[], memoryBytes: number): ShadowChoice {
  const bySize = [...candidates].sort((left, right) => left.bytes - right.bytes);
  const fitting = bySize.filter(({ bytes }) => bytes <= memoryBytes * WEIGHTS_SHARE);
  const memory = formatByteSize(memoryBytes);
  const largest = fitting.at(-1);
  if (largest === undefined) {
    const smallest = requirePresent(bySize[0], 'there is a form to choose.');
    return { precision: smallest.precision, reason: `the smallest form, though none fits ${memory}` };
  }
  const best = Math.max(...fitting.map(({ recall }) => recall ?? -1));
  if (best < 0) {
    return { precision: largest.precision, reason: `the largest form that fits ${memory}; recall was not measured` };
  }
  const chosen = fitting.find(({ recall }) => recall !== null && recall > best - RECALL_TOLERANCE);
  const { precision, recall } = requirePresent(chosen, 'a form that fits predicts best.');
  return { precision, reason: `predicts best of the forms that fit ${memory}: recall ${recall?.toFixed(4)}` };
}
