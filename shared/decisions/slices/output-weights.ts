/** The weights with which outputs of chosen experts are summed, from the scores of all experts: what the router itself computes for its own choice. */
import { expertLayerNumbers, type ModelShape, type RouterShape } from '../../model/model-shape.js';
import type { NumberList } from './choose-experts.js';

/** The native router's operations in FP32, in its order. `experts`: by rank. A sparsemixer's weights do not follow from its scores. */
export function outputWeights(router: RouterShape, scores: NumberList, experts: readonly number[]): Float32Array {
  const weights = Float32Array.from(experts, (expert) => scores[expert] ?? NaN);
  if (router.normalize) {
    const sum = weights.reduce((added, weight) => Math.fround(added + weight));
    const withEpsilon = Math.fround(sum + Math.fround(router.sumEpsilon));
    const floor = Math.fround(router.sumFloor);
    const total = floor > withEpsilon ? floor : withEpsilon;
    weights.forEach((weight, rank) => (weights[rank] = weight / total));
  }
  const scale = Math.fround(router.scale);
  return weights.map((weight) => weight * scale);
}

/** The routers of the layers with experts, in their order. */
export function routersOf(shape: ModelShape): RouterShape[] {
  return expertLayerNumbers(shape).flatMap((layer) => shape.layers[layer]?.routed ?? []);
}

/** Says why no expert can be chosen in place of the routers' own choice; null: it can. */
export function otherChoiceProblem(shape: ModelShape): string | null {
  const routers = routersOf(shape);
  if (routers.some(({ score }) => score === 'sparsemixer')) return 'its routers (sparsemixer) do not score all experts';
  if (routers.some(({ choiceBias, byToken }) => choiceBias || byToken === true))
    return 'its routers choose by other numbers than their scores';
  if (routers.some(({ groups, groupsKept }) => groupsKept < groups))
    return 'its routers choose among groups of experts';
  if (routers.some(({ expertScale }) => expertScale)) return 'its routers scale the weight of each expert';
  return null;
}
