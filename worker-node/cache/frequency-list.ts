/** Activations of a layer's experts that are remembered, for each expert: beyond it all counts are halved, so that habits may change. */
export const REMEMBERED_ACTIVATIONS = 128;

/** The runtime frequency list of one layer (ZipMoE section 3.4): how often each expert was activated lately. */
export class FrequencyList {
  private readonly counts: Float64Array;
  private total = 0;

  constructor(experts: number) {
    this.counts = new Float64Array(experts);
  }

  add(expert: number, activations: number): void {
    this.counts[expert] = this.of(expert) + activations;
    this.total += activations;
    const limit = REMEMBERED_ACTIVATIONS * this.counts.length;
    let factor = 1;
    while (this.total * factor > limit) factor /= 2;
    if (factor < 1) this.scale(factor);
  }

  /** Adds earlier counts with at most half the weight that the list can remember. */
  seed(counts: ArrayLike<number>): void {
    let total = 0;
    for (let expert = 0; expert < this.counts.length; expert += 1) total += counts[expert] ?? 0;
    const scale = Math.min(1, (REMEMBERED_ACTIVATIONS * this.counts.length) / 2 / total);
    for (let expert = 0; expert < this.counts.length; expert += 1) this.add(expert, (counts[expert] ?? 0) * scale);
  }

  of(expert: number): number {
    return this.counts[expert] ?? 0;
  }

  /** Experts activated more often than this one. */
  rank(expert: number): number {
    const own = this.of(expert);
    let rank = 0;
    for (const count of this.counts) if (count > own) rank += 1;
    return rank;
  }

  private scale(factor: number): void {
    for (let expert = 0; expert < this.counts.length; expert += 1) this.counts[expert] = this.of(expert) * factor;
    this.total *= factor;
  }
}
