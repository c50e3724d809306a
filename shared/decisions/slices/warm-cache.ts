/** The contents of a logical cache when decode begins: by SliceMoE's predictive cache warmup (section 4.3), or by a baseline. */
import { counterRandom } from '../../base/arithmetic/counter-random.js';
import type { CacheContents, CacheShape } from './logical-cache.js';

/** `warm`: SliceMoE's. `last-layer`: both slices of what the prompt chose in the last layer. `random`: upper slices of what it chose anywhere. */
export type CacheStart = 'warm' | 'empty' | 'last-layer' | 'random';

export const CACHE_STARTS: readonly CacheStart[] = ['warm', 'empty', 'last-layer', 'random'];

/** How often a prompt's tokens chose each expert, and with which renormalized weights. It is the same however the prompt is cut into passes. */
export class PromptChoices {
  constructor(
    private readonly counts: Float64Array,
    private readonly weights: Float64Array,
  ) {}

  static none(experts: number): PromptChoices {
    return new PromptChoices(new Float64Array(experts), new Float64Array(experts));
  }

  add(expert: number, renormalizedWeight: number): void {
    this.counts[expert] = this.count(expert) + 1;
    this.weights[expert] = (this.weights[expert] ?? 0) + renormalizedWeight;
  }

  /** Experts that were chosen, ascending. */
  get chosen(): number[] {
    return Array.from(this.counts.keys()).filter((expert) => this.count(expert) > 0);
  }

  count(expert: number): number {
    return this.counts[expert] ?? 0;
  }

  meanWeight(expert: number): number {
    return (this.weights[expert] ?? 0) / this.count(expert);
  }

  /** Takes the choices of the experts from `first` to before `end` over from another prompt. */
  take({ counts, weights }: PromptChoices, first: number, end: number): void {
    this.counts.set(counts.subarray(first, end), first);
    this.weights.set(weights.subarray(first, end), first);
  }

  fork(): PromptChoices {
    return new PromptChoices(this.counts.slice(), this.weights.slice());
  }
}

/** `theta`: renormalized weight from which an execution is critical. `seed`: of a random start. */
export function cacheContents(
  start: CacheStart,
  prompt: PromptChoices,
  shape: CacheShape,
  { theta, seed }: { theta: number; seed: number },
): CacheContents {
  switch (start) {
    case 'warm':
      return warmedContents(prompt, shape, theta);
    case 'empty':
      return { upper: [], lower: [] };
    case 'last-layer': {
      const lastLayer = prompt.chosen.filter((expert) => expert >= (shape.layers - 1) * shape.experts);
      const kept = lastLayer.slice(0, Math.floor(shape.capacityBytes / (shape.upperBytes + shape.lowerBytes)));
      return { upper: kept, lower: kept };
    }
    case 'random': {
      const shuffled = sorted(prompt.chosen, (expert) => [counterRandom(seed, expert)]);
      return { upper: shuffled.slice(0, Math.floor(shape.capacityBytes / shape.upperBytes)), lower: [] };
    }
  }
}

/**
 * All slices of the chosen experts, without those that leave while there are more bytes than room: first lower slices whose mean weight is not
 * critical, the lowest first; then experts that were chosen least often, with what they have left. The rest is in the order of their counts.
 * A slice that leaves in prefill and is wanted again is loaded again, so the end depends on the whole prompt alone.
 */
function warmedContents(prompt: PromptChoices, shape: CacheShape, theta: number): CacheContents {
  const byCount = sorted(prompt.chosen, (expert) => [prompt.count(expert), prompt.meanWeight(expert)]);
  const upper = new Set(byCount);
  const lower = new Set(byCount);
  const hasExcess = (): boolean => upper.size * shape.upperBytes + lower.size * shape.lowerBytes > shape.capacityBytes;
  const byWeight = sorted(byCount, (expert) => [prompt.meanWeight(expert), prompt.count(expert)]);
  for (const expert of byWeight) {
    if (!hasExcess() || prompt.meanWeight(expert) >= theta) break;
    lower.delete(expert);
  }
  for (const expert of byCount) {
    if (!hasExcess()) break;
    upper.delete(expert);
    lower.delete(expert);
  }
  return { upper: [...upper], lower: byCount.filter((expert) => lower.has(expert)) };
}

/** Ascending by the first key, then by the next one, then by number. */
function sorted(experts: readonly number[], keysOf: (expert: number) => readonly number[]): number[] {
  const keyed = experts.map((expert) => ({ expert, keys: [...keysOf(expert), expert] }));
  keyed.sort((left, right) => {
    const at = left.keys.findIndex((key, index) => key !== right.keys[index]);
    return at < 0 ? 0 : (left.keys[at] ?? 0) - (right.keys[at] ?? 0);
  });
  return keyed.map(({ expert }) => expert);
}
