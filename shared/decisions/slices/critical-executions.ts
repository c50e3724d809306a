/**
 * The executions of experts that need both slices (SliceMoE, section 4.1). It depends on nothing but the router's weights for a token, so that
 * no answer depends on what a cache happens to hold.
 */
import { assertInvariant } from '../../base/errors/assert-invariant.js';

/**
 * Each weight divided by the sum of the weights of its row, in FP32 and in rank order. `weights`: the router's, rows x expertsPerToken by rank.
 * A row whose weights are all 0 has no renormalized weights: they are NaN.
 */
export function renormalizedWeights(weights: Float32Array, expertsPerToken: number): Float32Array {
  const renormalized = new Float32Array(weights.length);
  for (let first = 0; first < weights.length; first += expertsPerToken) {
    const end = Math.min(first + expertsPerToken, weights.length);
    let sum = 0;
    for (let at = first; at < end; at += 1) sum = Math.fround(sum + (weights[at] ?? NaN));
    for (let at = first; at < end; at += 1) renormalized[at] = (weights[at] ?? NaN) / sum;
  }
  return renormalized;
}

/** True for a critical execution. Both numbers are FP32; NaN is not critical. */
export function isCritical(renormalizedWeight: number, theta: number): boolean {
  return renormalizedWeight >= theta;
}

export interface CriticalThreshold {
  /** Executions with at least this renormalized weight are critical. It is one of the measured weights. */
  readonly theta: number;
  /** The share of the measured executions that are critical by it. */
  readonly share: number;
}

/**
 * The threshold by which the share of critical executions comes nearest to the wanted one; of two that come equally near, the higher threshold,
 * which reads fewer bytes. `renormalized`: at least one measured weight.
 */
export function thresholdOfShare(renormalized: Float32Array, wantedShare: number): CriticalThreshold {
  const rising = renormalized.filter((weight) => !Number.isNaN(weight)).sort();
  assertInvariant(rising.length > 0, 'a threshold is measured from at least one weight.');
  let best: CriticalThreshold | null = null;
  for (let index = rising.length - 1; index >= 0; index -= 1) {
    const theta = rising[index] ?? NaN;
    if (theta === rising[index - 1]) continue;
    const share = (rising.length - index) / renormalized.length;
    if (best !== null && Math.abs(share - wantedShare) >= Math.abs(best.share - wantedShare)) break;
    best = { theta, share };
  }
  assertInvariant(best !== null, 'the highest weight is a threshold.');
  return best;
}
