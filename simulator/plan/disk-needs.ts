import { STORAGE_FORMS, type ProfiledModel } from '../../shared/emulation/device-profile.js';
import { expertWeights, layersWork, vocabularyWeights } from '../../shared/emulation/layer-work.js';
import type { ExpertStorage } from '../../shared/config/node-settings.js';

/** Bytes of a pack, or of the part of it that a node needs on its disk. */
export interface DiskNeeds {
  /** Main and shadow: all of it. */
  wholePackBytes: number;
  /** A worker that may be asked for any expert: all experts. */
  allExpertsBytes: number;
  /** A worker that has its own experts only (`placement.homes: strict`). */
  ownExpertsBytes: number;
}

/** `copies`: workers that hold each expert, with homes of its own. Pure. */
export function diskNeeds(
  { shape, tiedEmbeddings, quantization, weightBytes }: ProfiledModel,
  storage: ExpertStorage,
  { workers, copies }: { workers: number; copies: number },
): DiskNeeds {
  const { expertLayers, experts } = shape;
  const allExpertsBytes = expertLayers * experts * expertWeights(shape) * STORAGE_FORMS[storage].storedBytes;
  const dense = layersWork(shape).reduce((sum, { weights }) => sum + weights, 0);
  const vocabulary = (tiedEmbeddings ? 1 : 2) * vocabularyWeights(shape);
  const denseBytes = dense * (quantization === 'fp8' ? STORAGE_FORMS.fp8.storedBytes : weightBytes);
  return {
    wholePackBytes: Math.round(denseBytes + vocabulary * weightBytes + allExpertsBytes),
    allExpertsBytes: Math.round(allExpertsBytes),
    ownExpertsBytes: Math.round(allExpertsBytes * Math.min(1, copies / workers)),
  };
}
