import type { ExpertShape } from '../../native/index.js';
import { expertFormats } from '../../shared/model/expert-formats.js';
import { type ExpertRowShape, expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import type { ExpertSource, SlicedSplit } from '../../shared/model/tensor-source.js';

/** The shape of slots for sliced experts, or (null) for these experts as they are shipped. */
export function expertShape(
  { expert: glu, ...shape }: ExpertRowShape & Pick<ModelShape, 'expert'>,
  sliced: SlicedSplit | null,
  experts: () => Iterable<ExpertSource>,
): ExpertShape {
  const hiddenSize = expertRowSize(shape);
  if (sliced !== null) return { hiddenSize, glu, format: sliced };
  return { hiddenSize, glu, format: 'shipped', shipped: expertFormats(experts()) };
}
