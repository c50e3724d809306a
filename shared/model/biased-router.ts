import type { ConfigReader } from './config-reader.js';
import { routerOf } from './decoder-config.js';
import type { RouterShape } from './model-shape.js';

/** DeepSeek-V3's router, which GLM has too: sigmoid scores, a bias for the choice only, groups by the sum of their two best. */
export function readBiasedRouter(config: ConfigReader, own: Partial<RouterShape> = {}): RouterShape {
  config.only('scoring_func', ['sigmoid'], 'sigmoid');
  config.only('topk_method', ['noaux_tc'], 'noaux_tc');
  const groups = config.sizeOr(1, 'n_group');
  return routerOf({
    score: 'sigmoid',
    choiceBias: true,
    groups,
    groupsKept: config.sizeOr(groups, 'topk_group'),
    groupScore: 'best-two',
    normalize: config.flagOr(true, 'norm_topk_prob'),
    sumEpsilon: Math.fround(1e-20),
    scale: Math.fround(config.numberOr(1, 'routed_scaling_factor')),
    ...own,
  });
}
