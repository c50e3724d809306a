import { expertMatrixValues } from '../../shared/model/model-shape.js';
import {
  STORAGE_FORMS,
  storageForm,
  type PlannedStorage,
  type ProfiledModel,
} from '../../engine/emulation/device-profile.js';
import { layersWork, vocabularyWeights } from '../../engine/emulation/layer-arithmetic.js';
import type { ClusterSetUp } from '../simulate/cluster-set-up.js';

/** Bytes of a pack, or of the part of it that a node needs on its disk. */
export interface DiskNeeds {
  /** Bytes for main and shadow: the whole pack. */
  wholePackBytes: number;
  /** Bytes for a worker: all experts, or those of its strict homes (`placement.homes: strict`). */
  workerBytes: number;
}

/** Pure. */
export function diskNeeds(
  { shape, tiedEmbeddings, quantization, weightBytes, format }: ProfiledModel,
  storage: PlannedStorage,
  { workers, placement: { homes, replicas } }: Pick<ClusterSetUp, 'workers' | 'placement'>,
): DiskNeeds {
  const { expertLayers, experts } = shape;
  const allExpertsBytes = expertLayers * experts * expertMatrixValues(shape) * storageForm(storage).storedBytes;
  const dense = layersWork(shape).reduce((sum, { weights }) => sum + weights, 0);
  const plain = {
    denseBytes: quantization === 'fp8' ? STORAGE_FORMS.fp8.storedBytes : weightBytes,
    embeddingBytes: weightBytes,
    headBytes: weightBytes,
  };
  const { denseBytes, embeddingBytes, headBytes } = format ?? plain;
  const outerBytes = vocabularyWeights(shape) * (embeddingBytes + (tiedEmbeddings ? 0 : headBytes));
  return {
    wholePackBytes: Math.round(dense * denseBytes + outerBytes + allExpertsBytes),
    workerBytes: Math.round(allExpertsBytes * (homes === 'strict' ? Math.min(1, replicas / workers) : 1)),
  };
}
