/**
 * Which experts a token uses: its router's best ones, or cached ones among the good ones ("Mixture of cache-conditional experts", arXiv
 * 2412.00099). Whatever the rule, outputs are weighted by the router's own scores and summed by their rank.
 */
import { assertInvariant } from '../../base/errors/assert-invariant.js';
import type { Routing } from '../../settings/logical-rules.js';
import { renormalizedWeights } from './critical-executions.js';

export type NumberList = readonly number[] | Float32Array | Float64Array;

/** The router's answer for one token and one layer, by expert. */
export interface RouterScores {
  readonly logits: NumberList;
  /** They weight the outputs: after softmax or sigmoid. */
  readonly scores: NumberList;
  /** What the router ranks experts by, where that is not their scores. Rules that prefer cached experts are not defined for such a router. */
  readonly ranking?: NumberList;
}

export interface CacheView {
  readonly isCached: (expert: number) => boolean;
  /** The running mean of highest minus lowest logit of this layer, with this token's. */
  readonly meanRange: number;
}

/** Returns experts by rank: the highest score first, of equal ones the lower number. */
export function chooseExperts(routing: Routing, router: RouterScores, count: number, cache: CacheView): number[] {
  if (routing.kind === 'top-k') return bestOf(router.ranking ?? router.scores, count);
  assertInvariant(
    router.ranking === undefined,
    'a router that ranks by other numbers than its scores makes its own choice.',
  );
  const kept = bestOf(router.scores, Math.min(routing.kept, count));
  if (routing.kind === 'cumulative') {
    const ranked = bestOf(router.scores, router.scores.length);
    const candidates = candidatesOf(ranked, router.scores, routing.mass);
    const order = cachedFirst(ranked, new Set(kept), candidates, cache);
    const chosen = new Set(order.slice(0, count));
    return ranked.filter((expert) => chosen.has(expert));
  }
  const bias = routing.lambda * cache.meanRange;
  const biased = Float64Array.from(router.logits, (logit, expert) => logit + (cache.isCached(expert) ? bias : 0));
  for (const expert of kept) biased[expert] = Infinity;
  const chosen = bestOf(biased, count);
  return chosen.sort((left, right) => (router.scores[right] ?? 0) - (router.scores[left] ?? 0) || left - right);
}

/** Highest logit minus the lowest. */
export function rangeOf(logits: NumberList): number {
  let [least, most] = [Infinity, -Infinity];
  for (const logit of logits) {
    least = Math.min(least, logit);
    most = Math.max(most, logit);
  }
  return most - least;
}

/** The renormalized weights of a token's chosen experts, in their order. */
export function renormalizedScores({ scores }: RouterScores, chosen: readonly number[]): Float32Array {
  const weights = Float32Array.from(chosen, (expert) => scores[expert] ?? 0);
  return renormalizedWeights(weights, chosen.length);
}

/** So many experts with the highest values, by rank. */
function bestOf(values: NumberList, count: number): number[] {
  const best: number[] = [];
  for (let expert = 0; expert < values.length; expert += 1) {
    let rank = best.length;
    while (rank > 0 && (values[expert] ?? 0) > (values[best[rank - 1] ?? 0] ?? 0)) rank -= 1;
    if (rank >= count) continue;
    best.splice(rank, 0, expert);
    if (best.length > count) best.pop();
  }
  return best;
}

/** The shortest list of best experts with at least this sum of scores. */
function candidatesOf(ranked: readonly number[], scores: NumberList, mass: number): ReadonlySet<number> {
  const candidates = new Set<number>();
  let sum = 0;
  for (const expert of ranked) {
    if (sum >= mass) break;
    candidates.add(expert);
    sum += scores[expert] ?? 0;
  }
  return candidates;
}

/** Kept experts, then cached candidates, then all others, each in the order of rank. */
function cachedFirst(
  ranked: readonly number[],
  kept: ReadonlySet<number>,
  candidates: ReadonlySet<number>,
  { isCached }: CacheView,
): number[] {
  const others = ranked.filter((expert) => !kept.has(expert));
  const preferred = new Set(others.filter((expert) => candidates.has(expert) && isCached(expert)));
  return [...kept, ...preferred, ...others.filter((expert) => !preferred.has(expert))];
}
