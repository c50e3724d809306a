/**
 * Probability of exactly 0, 1, 2, ... hits among independent choices with the given probabilities: a Poisson binomial distribution (ZipMoE
 * Algorithm 2). `most`: larger numbers of hits are left out.
 */
export function hitDistribution(probabilities: ArrayLike<number>, most = probabilities.length): Float64Array {
  const distribution = new Float64Array(Math.min(most, probabilities.length) + 1);
  distribution[0] = 1;
  for (const probability of Array.from(probabilities)) addChoice(distribution, probability);
  return distribution;
}

/** Adds one choice: Phi(h) <- Phi(h) (1 - q) + Phi(h - 1) q, in place. */
export function addChoice(distribution: Float64Array, probability: number): void {
  for (let hits = distribution.length - 1; hits >= 1; hits -= 1) {
    distribution[hits] = (distribution[hits] ?? 0) * (1 - probability) + (distribution[hits - 1] ?? 0) * probability;
  }
  distribution[0] = (distribution[0] ?? 0) * (1 - probability);
}

/** hitDistribution of every interval of a list of choices. Each is computed at its first use. */
export class IntervalHits {
  private readonly byStart: Float64Array[][] = [];

  constructor(
    private readonly probabilities: ArrayLike<number>,
    private readonly most: number,
  ) {}

  /** The distribution for the choices from `start` on, before `end`; always most + 1 numbers. */
  of(start: number, end: number): Float64Array {
    const fromStart = (this.byStart[start] ??= [this.none()]);
    for (let length = fromStart.length; length <= end - start; length += 1) {
      const distribution = fromStart[length - 1]?.slice() ?? this.none();
      addChoice(distribution, this.probabilities[start + length - 1] ?? 0);
      fromStart.push(distribution);
    }
    return fromStart[end - start] ?? this.none();
  }

  private none(): Float64Array {
    const distribution = new Float64Array(this.most + 1);
    distribution[0] = 1;
    return distribution;
  }
}
