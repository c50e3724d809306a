import type { Model } from '../../native/index.js';
import { densePlaces } from '../../shared/model/model-family.js';
import type {
  DenseRole,
  ExpertSource,
  ModelSource,
  TensorSource,
  WeightFormat,
} from '../../shared/model/tensor-source.js';
import { exactFormatOf } from '../../shared/model/weight-dtype.js';

export type LoadProgress = (doneBytes: number, totalBytes: number) => void;

const PROJECTION_ROLES: ReadonlySet<DenseRole> = new Set(['query', 'key', 'value', 'attentionOutput']);
const NORM_ROLES: ReadonlySet<DenseRole> = new Set(['attentionNorm', 'expertNorm', 'finalNorm']);

/**
 * Loads everything but the experts: query, key, value and output projections in the format asked for; embedding, LM head and
 * routers as shipped; norms as FP32. Asking for the model's shipped format keeps each projection's own, so that nothing is rounded
 * even where a checkpoint mixes types. fixed4, which rounds nothing either, is for the LM head too (an embedding in its place, where
 * there is none).
 * @throws what the device and the files give: DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, STORAGE_FAILED
 */
export async function loadDenseWeights(
  model: Model,
  source: ModelSource,
  projections: WeightFormat,
  onProgress?: LoadProgress,
): Promise<void> {
  const places = [...densePlaces(source.shape, source.tiedEmbeddings)];
  const totalBytes = places.reduce((sum, { role, layer }) => sum + storedBytes(source.dense(role, layer)), 0);
  let doneBytes = 0;
  for (const { role, layer } of places) {
    const tensor = source.dense(role, layer);
    await model.loadDense(role, layer, tensor, denseFormat(role, tensor, source, projections));
    doneBytes += storedBytes(tensor);
    onProgress?.(doneBytes, totalBytes);
  }
}

/** Loads every expert, for a device that holds them all. @throws as loadDenseWeights */
export async function loadResidentExperts(
  model: Model,
  source: ModelSource,
  format: WeightFormat,
  onProgress?: LoadProgress,
): Promise<void> {
  const { layers, experts } = source.shape;
  const expertBytes = (expert: ExpertSource): number =>
    storedBytes(expert.gate) + storedBytes(expert.up) + storedBytes(expert.down);
  let totalBytes = 0;
  for (let layer = 0; layer < layers; layer += 1) {
    for (let expert = 0; expert < experts; expert += 1) totalBytes += expertBytes(source.expert(layer, expert));
  }
  let doneBytes = 0;
  for (let layer = 0; layer < layers; layer += 1) {
    for (let expert = 0; expert < experts; expert += 1) {
      const tensors = source.expert(layer, expert);
      await model.loadResidentExpert(layer, expert, tensors, format);
      doneBytes += expertBytes(tensors);
      onProgress?.(doneBytes, totalBytes);
    }
  }
}

function denseFormat(
  role: DenseRole,
  tensor: TensorSource,
  source: ModelSource,
  projections: WeightFormat,
): WeightFormat {
  if (NORM_ROLES.has(role)) return 'fp32';
  if (projections === 'fixed4' && role === (source.tiedEmbeddings ? 'embedding' : 'lmHead')) return 'fixed4';
  if (PROJECTION_ROLES.has(role) && projections !== source.shippedFormat) return projections;
  return exactFormatOf(tensor.split);
}

function storedBytes(tensor: TensorSource): number {
  return tensor.chunks.reduce((sum, chunk) => sum + chunk.storedBytes, 0);
}
