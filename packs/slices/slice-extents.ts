/** The extents of slices, as slices.json lists them. Pure. */
import { EXPERT_MATRICES } from '../../shared/model/tensor-source.js';
import { type ExpertExtent, extentOfChunks } from '../format/extents.js';
import { type Slice, sliceFileName } from '../format/pack-layout.js';
import type { SlicesManifest } from './slices-manifest.js';

/** One slice of each expert: entry layer * experts + expert. An expert's biases count with its upper slice. */
export function sliceExtents({ experts }: Pick<SlicesManifest, 'experts'>, slice: Slice): ExpertExtent[] {
  return experts.map((entry) => {
    const matrices = EXPERT_MATRICES.map((part) => entry[part][slice]);
    const biases = slice === 'upper' && entry.biases !== null ? [entry.biases] : [];
    return extentOfChunks(entry, sliceFileName(entry.layer, slice), [...matrices, ...biases]);
  });
}
