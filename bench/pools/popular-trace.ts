import { logarithm, power } from '../../shared/base/arithmetic/elementary.js';
import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';
import type { ClusterTrace, TracePlace } from '../../simulator/trace/cluster-trace.js';

export interface PopularTraceSetting {
  layers: number;
  experts: number;
  expertsPerToken: number;
  prompts: number;
  promptTokens: number;
  iterations: number;
  /** An expert's popularity is its rank to the power of minus this; 0: all are equally popular. */
  skew: number;
  seed: number;
}

/**
 * A trace whose experts are drawn by popularity, for each token independently of earlier tokens, as ZipMoE's planning assumes (section 3.4).
 * Each layer has its own popular experts, which are the same for all prompts. Experts are drawn without replacement by the Gumbel trick: the k
 * largest of log weight plus noise. A position always gives the same experts. Nothing is predicted.
 */
export class PopularTrace implements ClusterTrace {
  readonly layers: number;
  readonly experts: number;
  readonly expertsPerToken: number;
  readonly prompts: number;
  private readonly weights: readonly Float64Array[];

  constructor(private readonly setting: PopularTraceSetting) {
    const { layers, experts, expertsPerToken, prompts, skew } = setting;
    [this.layers, this.experts, this.expertsPerToken, this.prompts] = [layers, experts, expertsPerToken, prompts];
    this.weights = Array.from({ length: layers }, (_, layer) => {
      const weights = new Float64Array(experts);
      this.shuffled(layer).forEach((expert, rank) => (weights[expert] = power(rank + 1, -skew)));
      return weights;
    });
  }

  promptTokens(): number {
    return this.setting.promptTokens;
  }

  iterations(): number {
    return this.setting.iterations;
  }

  activated({ prompt, position, layer }: TracePlace): readonly number[] {
    const { promptTokens, iterations, layers, experts, expertsPerToken, seed } = this.setting;
    const first = ((prompt * (promptTokens + iterations) + position) * layers + layer) * experts;
    // The largest log weight plus Gumbel noise is the shortest exponential wait at the weights' rates.
    const waits = Array.from(this.weights[layer] ?? [], (weight, expert) => {
      // Avoid 0, which has no logarithm.
      const uniform = counterRandom(seed, first + expert) + Number.MIN_VALUE;
      return { expert, wait: -logarithm(uniform) / weight };
    });
    waits.sort((left, right) => left.wait - right.wait);
    return waits.slice(0, expertsPerToken).map(({ expert }) => expert);
  }

  predicted(): readonly number[] {
    return [];
  }

  guessedRight(): boolean {
    return false;
  }

  /** A Fisher-Yates shuffle with random numbers that no token uses. */
  private shuffled(layer: number): number[] {
    const order = [...Array(this.setting.experts).keys()];
    for (let last = order.length - 1; last > 0; last -= 1) {
      const other = Math.floor(counterRandom(this.setting.seed + 1, layer * order.length + last) * (last + 1));
      [order[last], order[other]] = [order[other] ?? 0, order[last] ?? 0];
    }
    return order;
  }
}
