import { exponential, power } from '../../base/arithmetic/elementary.js';
import { OdmoeError } from '../../base/errors/odmoe-error.js';
import { addChoice } from './hit-distribution.js';

/** Largest accepted difference from an inclusion probability. */
const FIT_TOLERANCE = 1e-11;
/** Difference beyond which fitting has failed. */
const WORST_FIT = 1e-9;
const FIT_ITERATIONS = 2_000;
/** Share of the difference in log odds that one step corrects. A full step would overshoot if two experts exclude each other. */
const ODDS_STEP = 0.6;
/** A probability this close to 0 or 1 counts as 0 or 1. */
const CERTAIN = 1e-12;
/** Activations added to each expert's count, because an expert without any may still be activated. */
const PRIOR_ACTIVATIONS = 0.5;

/**
 * Probability that the expert of each rank, most frequent first, is among the k that a layer activates. It follows from recorded counts of
 * several layers: the mean over the layers at each rank (ZipMoE section 3.4, "Rank-Based Workload Modeling"). Layers without counts are ignored;
 * null: no layer has counts.
 */
export function inclusionProbabilities(layers: readonly ArrayLike<number>[], activated: number): Float64Array | null {
  const recorded = layers.filter((counts) => Array.from(counts).some((count) => count > 0));
  const [first] = recorded;
  if (first === undefined) return null;
  const mean = new Float64Array(first.length);
  for (const counts of recorded) {
    const ranked = Float64Array.from(counts, (count) => count + PRIOR_ACTIVATIONS).sort((left, right) => right - left);
    shareOut(ranked, activated).forEach((probability, rank) => {
      mean[rank] = (mean[rank] ?? 0) + probability / recorded.length;
    });
  }
  return mean;
}

/** Inclusion probabilities of experts whose popularity is rank to the power of -`skew`; `skew` 0: all are equally popular. */
export function assumedInclusionProbabilities(experts: number, activated: number, skew: number): Float64Array {
  return shareOut(
    Float64Array.from({ length: experts }, (_, rank) => power(rank + 1, -skew)),
    activated,
  );
}

/** Probabilities in proportion to positive weights. None is above 1, and they sum to `activated` (or to their number, if that is smaller). */
function shareOut(weights: Float64Array, activated: number): Float64Array {
  const shares = new Float64Array(weights.length);
  let remaining = Math.min(activated, weights.length);
  let total = weights.reduce((sum, weight) => sum + weight, 0);
  // Weights fall: once a share is below 1, all later ones are, too.
  weights.forEach((weight, rank) => {
    const share = total === 0 ? 0 : Math.min(1, (remaining * weight) / total);
    shares[rank] = share;
    if (share < 1) return;
    remaining -= 1;
    total -= weight;
  });
  return shares;
}

/**
 * Selection probabilities q_i of independent choices. Given that exactly k are chosen, they include i with probability f_i: the maximum entropy
 * distribution (ZipMoE appendix D, after Chen et al. 1994). Weights w_i are multiplied by f_i over the *current* inclusion probability of i
 * until these agree; q_i = w_i / (1 + w_i). This alone needs tens of thousands of rounds if as many experts as are activated are nearly certain.
 * So every other round compares odds instead; both kinds of rounds converge to the same weights.
 * @param inclusion f_i in [0, 1], whose sum is a whole number k
 * @throws INTERNAL for other values, or if fitting does not end within 1e-9
 */
export function fitSelectionProbabilities(inclusion: ArrayLike<number>): Float64Array {
  const all = Float64Array.from(inclusion);
  const sum = all.reduce((total, probability) => total + probability, 0);
  const isProbability = (value: number): boolean => value >= 0 && value <= 1 + CERTAIN;
  if (!all.every(isProbability) || Math.abs(sum - Math.round(sum)) > 1e-6)
    throw new OdmoeError(
      'INTERNAL',
      `inclusion probabilities must lie in [0, 1] and sum to a whole number, not ${sum}`,
    );
  const isCertain = (probability: number): boolean => probability >= 1 - CERTAIN;
  const uncertain = [...all.keys()].filter((i) => (all[i] ?? 0) > CERTAIN && !isCertain(all[i] ?? 0));
  const selection = all.map((probability) => (isCertain(probability) ? 1 : 0));
  const chosen = Math.round(sum) - all.filter(isCertain).length;
  if (uncertain.length === 0) return selection;
  const fitted = fitUncertain(
    Float64Array.from(uncertain, (i) => all[i] ?? 0),
    chosen,
  );
  uncertain.forEach((i, index) => (selection[i] = fitted[index] ?? 0));
  return selection;
}

/** As fitSelectionProbabilities, for f_i strictly between 0 and 1. */
function fitUncertain(target: Float64Array, chosen: number): Float64Array {
  const weights = target.map(oddsOf);
  let difference = Infinity;
  for (let iteration = 0; iteration < FIT_ITERATIONS && difference > FIT_TOLERANCE; iteration += 1) {
    const current = inclusionGiven(weights.map(selectionOf), chosen);
    difference = 0;
    target.forEach((wanted, i) => {
      const found = current[i] ?? 0;
      difference = Math.max(difference, Math.abs(found - wanted));
      const factor = iteration % 2 === 0 ? power(oddsOf(wanted) / oddsOf(found), ODDS_STEP) : wanted / found;
      weights[i] = (weights[i] ?? 0) * factor;
    });
    scaleToExpect(weights, chosen);
  }
  if (difference > WORST_FIT)
    throw new OdmoeError(
      'INTERNAL',
      `selection probabilities were fitted to ${difference} only, after ${FIT_ITERATIONS} rounds`,
    );
  return weights.map(selectionOf);
}

function oddsOf(probability: number): number {
  return probability / (1 - probability);
}

function selectionOf(weight: number): number {
  return weight / (1 + weight);
}

/**
 * Probability that i is chosen given that exactly `chosen` of all are. The elementary symmetric polynomials of appendix D, over all but i, are
 * combined from the choices before i and those after it. They are computed as probabilities: sums of positive numbers that stay within [0, 1].
 */
export function inclusionGiven(selection: ArrayLike<number>, chosen: number): Float64Array {
  const count = selection.length;
  const start = new Float64Array(chosen + 1);
  start[0] = 1;
  const after: Float64Array[] = [start];
  for (let i = count - 1; i >= 0; i -= 1) {
    const distribution = (after[after.length - 1] ?? start).slice();
    addChoice(distribution, selection[i] ?? 0);
    after.push(distribution);
  }
  const total = after[count]?.[chosen] ?? 0;
  const before = start.slice();
  const inclusion = new Float64Array(count);
  for (let i = 0; i < count; i += 1) {
    const later = after[count - 1 - i] ?? start;
    let others = 0;
    for (let hits = 0; hits < chosen; hits += 1) others += (before[hits] ?? 0) * (later[chosen - 1 - hits] ?? 0);
    inclusion[i] = ((selection[i] ?? 0) * others) / total;
    addChoice(before, selection[i] ?? 0);
  }
  return inclusion;
}

/**
 * Scales the weights until the expected number of choices is `chosen`. A common factor changes nothing else, and with it no number becomes too
 * small.
 */
function scaleToExpect(weights: Float64Array, chosen: number): void {
  for (let round = 0; round < 4; round += 1) {
    let expected = 0;
    let slope = 0;
    for (const weight of weights) {
      const selection = selectionOf(weight);
      expected += selection;
      slope += selection * (1 - selection);
    }
    // Newton's step for the logarithm of the factor, limited because the sum may be flat.
    const factor = exponential(Math.min(2, Math.max(-2, (chosen - expected) / slope)));
    for (let i = 0; i < weights.length; i += 1) weights[i] = (weights[i] ?? 0) * factor;
  }
}
