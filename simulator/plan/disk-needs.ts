import { STORAGE_FORMS, type ProfiledModel } from '../../engine/emulation/device-profile.js';
import { expertWeights, layersWork, vocabularyWeights } from '../../engine/emulation/layer-arithmetic.js';
import type { ClusterSetUp } from '../simulate/cluster-set-up.js';
import type { ExpertStorage } from '../../shared/settings/setting-choices.js';

/** Bytes of a pack, or of the part of it that a node needs on its disk. */
export interface DiskNeeds {
  /** Bytes for main and shadow: the whole pack. */
  wholePackBytes: number;
  /** Bytes for a worker: all experts, or those of its strict homes (`placement.homes: strict`). */
  workerBytes: number;
}

/** Pure. */
export function diskNeeds(
  { shape, tiedEmbeddings, quantization, weightBytes }: ProfiledModel,
  storage: ExpertStorage,
  { workers, placement: { homes, replicas } }: Pick<ClusterSetUp, 'workers' | 'placement'>,
): DiskNeeds {
  const { expertLayers, experts } = shape;
  const allExpertsBytes = expertLayers * experts * expertWeights(shape) * STORAGE_FORMS[storage].storedBytes;
  const dense = layersWork(shape).reduce((sum, { weights }) => sum + weights, 0);
  const vocabulary = (tiedEmbeddings ? 1 : 2) * vocabularyWeights(shape);
  const denseBytes = dense * (quantization === 'fp8' ? STORAGE_FORMS.fp8.storedBytes : weightBytes);
  return {
    wholePackBytes: Math.round(denseBytes + vocabulary * weightBytes + allExpertsBytes),
    workerBytes: Math.round(allExpertsBytes * (homes === 'strict' ? Math.min(1, replicas / workers) : 1)),
  };
}
