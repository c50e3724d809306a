import type { ConfigReader } from './config-reader.js';
import { routerOf } from './decoder-config.js';
import type { RouterShape } from '../../shared/model/model-shape.js';

/** Values that transformers uses if config.json has none. */
interface RouterDefaults {
  groups: number;
  groupsKept: number;
  scale: number;
  /** Values of scoring_func that mean sigmoid. */
  scores?: readonly string[];
  /** norm_topk_prob. */
  normalize?: boolean;
}

/** The router of DeepSeek-V3 and GLM: sigmoid scores, a bias for the choice only, router groups scored by the sum of their two best experts. */
export function readBiasedRouter(
  config: ConfigReader,
  own: Partial<RouterShape> = {},
  { groups: usualGroups, groupsKept, scale, scores = ['sigmoid'], normalize = true }: RouterDefaults = {
    groups: 1,
    groupsKept: 1,
    scale: 1,
  },
): RouterShape {
  config.only('scoring_func', scores, 'sigmoid');
  config.only('topk_method', ['noaux_tc'], 'noaux_tc');
  for (const key of ['n_group', 'topk_group']) config.notNull(key);
  const groups = config.sizeOr(usualGroups, 'n_group');
  return routerOf({
    score: 'sigmoid',
    choiceBias: true,
    groups,
    groupsKept: config.sizeOr(groupsKept, 'topk_group'),
    groupScore: 'best-two',
    normalize: config.flagOr(normalize, 'norm_topk_prob'),
    sumEpsilon: Math.fround(1e-20),
    scale: own.scale ?? Math.fround(config.numberOr(scale, 'routed_scaling_factor')),
    ...own,
  });
}
