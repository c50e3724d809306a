/**
 * Which experts a token uses: its router's best ones, or cached ones among the good ones ("Mixture of cache-conditional experts", arXiv
 * 2412.00099). Whatever the rule, outputs are weighted by the router's own scores and summed by their rank.
 */

export type NumberList = readonly number[] | Float32Array | Float64Array;

/** The router's answer for one token and one layer, by expert. */
export interface RouterScores {
  readonly logits: NumberList;
  /** What outputs are weighted by: after softmax or sigmoid. */
  readonly scores: NumberList;
}

/** `kept`: as many of the best experts (J) are chosen in any case. */
export type Routing =
  | { readonly kind: 'top-k' }
  /** Cached experts are preferred among the fewest best ones whose scores sum to at least `mass`, with all scores summing to 1. */
  | { readonly kind: 'cumulative'; readonly mass: number; readonly kept: number }
  /** A cached expert's logit grows by lambda times the mean range of this layer's logits so far. */
  | { readonly kind: 'cache-prior'; readonly lambda: number; readonly kept: number };

export interface CacheView {
  readonly isCached: (expert: number) => boolean;
  /** The running mean of highest minus lowest logit of this layer, with this token's. */
  readonly meanRange: number;
}

/** Returns experts by rank: the highest score first, of equal ones the lower number. */
export function chooseExperts(routing: Routing, router: RouterScores, count: number, cache: CacheView): number[] {
  const ranked = rankedBy(router.scores);
  if (routing.kind === 'top-k') return ranked.slice(0, count);
  const best = ranked.slice(0, Math.min(routing.kept, count));
  const others = ranked.slice(best.length);
  const preferred =
    routing.kind === 'cumulative'
      ? cachedFirst(others, candidatesOf(ranked, router.scores, routing.mass), cache)
      : byBiasedLogit(others, router.logits, routing.lambda * cache.meanRange, cache);
  const chosen = new Set([...best, ...preferred.slice(0, count - best.length)]);
  return ranked.filter((expert) => chosen.has(expert));
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

/** Each score divided by the sum of the chosen ones. */
export function renormalized(scores: NumberList, chosen: readonly number[]): number[] {
  const sum = chosen.reduce((added, expert) => added + (scores[expert] ?? 0), 0);
  return chosen.map((expert) => (scores[expert] ?? 0) / sum);
}

function rankedBy(values: NumberList): number[] {
  const experts = Array.from(values, (_, expert) => expert);
  return experts.sort((left, right) => (values[right] ?? 0) - (values[left] ?? 0) || left - right);
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

/** `others` is in the order of rank, and each part of the result, too. */
function cachedFirst(others: readonly number[], candidates: ReadonlySet<number>, { isCached }: CacheView): number[] {
  const preferred = others.filter((expert) => candidates.has(expert) && isCached(expert));
  return [...preferred, ...others.filter((expert) => !candidates.has(expert) || !isCached(expert))];
}

function byBiasedLogit(others: readonly number[], logits: NumberList, bias: number, { isCached }: CacheView): number[] {
  const biased = new Map(others.map((expert) => [expert, (logits[expert] ?? 0) + (isCached(expert) ? bias : 0)]));
  return [...others].sort((left, right) => (biased.get(right) ?? 0) - (biased.get(left) ?? 0) || left - right);
}
