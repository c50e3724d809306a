import { tokenWeights } from '../../native/index.js';
import { counterRandom } from '../../shared/sampling/counter-random.js';
import type { SamplingOptions } from '../../shared/sampling/sampling-options.js';
import { highestIds, sortedByValue } from './highest.js';
import { requireUsableLogits } from './usable-logits.js';

/** How much lower the cut is set each time top-p's candidates do not yet hold enough probability. */
const TOP_P_CUT_STEP = 1 / 256;

/** Candidates with their unnormalized probabilities. */
interface Distribution {
  ids: readonly number[];
  weights: Float32Array;
}

/**
 * Chooses the next token: repetition penalty over `history` (prompt and answer), temperature, top-k, top-p, min-p, in that
 * order, as transformers' logits processors do, but that ties at a border go to the lower id. `position` is the new token's own;
 * the random number is a function of (options.seed, position). Throws INTERNAL for logits without a meaning.
 */
export function sampleToken(
  logits: Float32Array,
  history: readonly number[],
  position: number,
  options: SamplingOptions,
): number {
  const penalized = withRepetitionPenalty(logits, history, options.repetitionPenalty);
  if (options.temperature === 0) {
    requireUsableLogits(penalized);
    return highestIds(penalized, 1)[0] ?? 0;
  }
  return draw(samplingDistribution(penalized, options), counterRandom(options.seed, position));
}

/** Scores of tokens seen before, once each: positive ones divided by the penalty, negative ones multiplied (CTRL, section 4.1). */
function withRepetitionPenalty(logits: Float32Array, history: readonly number[], penalty: number): Float32Array {
  if (penalty === 1) return logits;
  const penalized = Float32Array.from(logits);
  for (const id of new Set(history)) {
    const logit = penalized[id];
    if (logit !== undefined) penalized[id] = logit < 0 ? logit * penalty : logit / penalty;
  }
  return penalized;
}

/** Candidates that temperature, top-k, top-p and min-p leave. options.temperature > 0. */
export function samplingDistribution(logits: Float32Array, options: SamplingOptions): Distribution {
  const highest = requireUsableLogits(logits);
  // The highest weighs 1, so that no temperature, however small, overflows.
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
    // Few tokens hold most of the mass: sorting those above a cut is much less work than sorting the vocabulary.
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
