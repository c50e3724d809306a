import { tokenWeights } from '../../native/index.js';
import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';
import type { SamplingOptions } from '../../shared/wire/sampling-options.js';
import { highestIds, sortedByValue } from './highest.js';
import { requireUsableLogits } from './usable-logits.js';

/** Factor by which the cut falls each time when top-p's candidates do not hold enough probability yet. */
const TOP_P_CUT_STEP = 1 / 256;

/** Candidates with their unnormalized probabilities. */
interface Distribution {
  ids: readonly number[];
  weights: Float32Array;
}

/**
 * Chooses a token from adjusted logits (adjustLogits): temperature, top-k, top-p, min-p, in that order, like transformers' logits processors,
 * but with ties at a border going to the lower id. `position` is the new token's position; the random number is a function of (options.seed,
 * position). Throws MODEL_CORRUPT for unusable logits.
 */
export function chooseToken(logits: Float32Array, position: number, options: SamplingOptions): number {
  if (options.temperature === 0) {
    requireUsableLogits(logits);
    return highestIds(logits, 1)[0] ?? 0;
  }
  return draw(samplingDistribution(logits, options), counterRandom(options.seed, position));
}

/** The candidates that remain after temperature, top-k, top-p and min-p. options.temperature must be > 0. */
export function samplingDistribution(logits: Float32Array, options: SamplingOptions): Distribution {
  const highest = requireUsableLogits(logits);
  // The highest logit has weight 1, so that a very small temperature does not overflow.
  const weights = tokenWeights(logits, highest, options.temperature);
  let ids: readonly number[] = topK(logits, options.topK);
  if (options.topP < 1) ids = topP(logits, weights, ids, options.topP);
  const ratio = options.minP;
  return { ids: ids.filter((id) => (weights[id] ?? 0) > 0 && (weights[id] ?? 0) >= ratio), weights };
}

function topK(logits: Float32Array, count: number): number[] {
  return count === 0 || count >= logits.length ? [...logits.keys()] : highestIds(logits, count);
}

/** The fewest most likely tokens that together hold at least `mass` of the candidates' probability; at least one. */
function topP(logits: Float32Array, weights: Float32Array, ids: readonly number[], mass: number): number[] {
  const needed = mass * sumOf(weights, ids);
  for (let cut = TOP_P_CUT_STEP; ; cut *= TOP_P_CUT_STEP) {
    // Few tokens hold most of the mass: sorting the tokens above a cut is much less work than sorting the vocabulary.
    const candidates = ids.filter((id) => (weights[id] ?? 0) >= cut);
    if (candidates.length === ids.length || sumOf(weights, candidates) >= needed) {
      return shortestPrefix(weights, sortedByValue(logits, candidates), needed);
    }
  }
}

function shortestPrefix(weights: Float32Array, sorted: number[], needed: number): number[] {
  let held = 0;
  for (let count = 0; count < sorted.length; count++) {
    held += weights[sorted[count] ?? 0] ?? 0;
    if (held >= needed) return sorted.slice(0, count + 1);
  }
  return sorted;
}

function sumOf(weights: Float32Array, ids: readonly number[]): number {
  let sum = 0;
  for (const id of ids) sum += weights[id] ?? 0;
  return sum;
}

function draw({ ids, weights }: Distribution, random: number): number {
  const target = random * sumOf(weights, ids);
  let passed = 0;
  for (const id of ids) {
    passed += weights[id] ?? 0;
    if (passed > target) return id;
  }
  return ids[ids.length - 1] ?? 0;
}
