import { allExperts } from './part-sizes.js';
import { EXPERT_MATRICES, type ExactFormat, type ExpertSource, type ModelSource } from './tensor-source.js';
import { exactFormatOf } from './weight-dtype.js';

/** Share of the weights of all experts that is shipped in a format, above 0 and at most 1. */
export interface FormatShare {
  format: ExactFormat;
  share: number;
}

/** The formats in which these experts are shipped, the one of most weights first; none for no experts. */
export function formatShares(experts: Iterable<ExpertSource>): FormatShare[] {
  const weights = new Map<ExactFormat, number>();
  let sum = 0;
  for (const expert of experts) {
    for (const matrix of EXPERT_MATRICES) {
      const { split, rows, columns } = expert[matrix];
      const format = exactFormatOf(split);
      weights.set(format, (weights.get(format) ?? 0) + rows * columns);
      sum += rows * columns;
    }
  }
  return [...weights]
    .map(([format, count]) => ({ format, share: count / sum }))
    .sort((a, b) => b.share - a.share || a.format.localeCompare(b.format));
}

/** The formats of a model's experts, the one of most weights first. */
export function shippedFormats(source: ModelSource): ExactFormat[] {
  return formatShares(allExperts(source)).map(({ format }) => format);
}
