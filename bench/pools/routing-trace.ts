import { counterRandom } from '../../shared/sampling/counter-random.js';

/** How a trace's experts are chosen: with popularity falling as rank to the power of `skew`, 0 being flat. */
export interface TraceSetting {
  layers: number;
  experts: number;
  /** Different experts of each layer that a token needs. */
  activated: number;
  skew: number;
  seed: number;
}

/**
 * Experts that tokens need, reproducible: token t of a seed is the same whatever was asked before. Each layer has popular experts of
 * its own. Experts are drawn without replacement in proportion to their popularity: the k largest of log weight plus
 * Gumbel noise.
 */
export class RoutingTrace {
  private readonly logWeights: Float64Array[];

  constructor(private readonly setting: TraceSetting) {
    this.logWeights = Array.from({ length: setting.layers }, (_, layer) => {
      const weights = new Float64Array(setting.experts);
      this.shuffled(layer).forEach((expert, rank) => (weights[expert] = -setting.skew * Math.log(rank + 1)));
      return weights;
    });
  }

  /** Of one layer of a token. */
  experts(token: number, layer: number): number[] {
    const { layers, experts, activated, seed } = this.setting;
    const first = (token * layers + layer) * experts;
    const scores = Array.from(this.logWeights[layer] ?? [], (logWeight, expert) => {
      // Never 0, whose logarithm has none itself.
      const uniform = counterRandom(seed, first + expert) + Number.MIN_VALUE;
      return { expert, score: logWeight - Math.log(-Math.log(uniform)) };
    });
    scores.sort((left, right) => right.score - left.score);
    return scores.slice(0, activated).map(({ expert }) => expert);
  }

  /** Fisher-Yates, by numbers that no token uses. */
  private shuffled(layer: number): number[] {
    const order = [...Array(this.setting.experts).keys()];
    for (let last = order.length - 1; last > 0; last -= 1) {
      const other = Math.floor(counterRandom(this.setting.seed + 1, layer * order.length + last) * (last + 1));
      [order[last], order[other]] = [order[other] ?? 0, order[last] ?? 0];
    }
    return order;
  }
}
