import type { Model } from '../../native/index.js';
import { type DenseRole, densePlaces, isVectorRole } from '../../shared/model/dense-roles.js';
import { storedBytes } from '../../shared/model/part-sizes.js';
import type { ExpertSource, ModelSource, TensorSource, WeightFormat } from '../../shared/model/tensor-source.js';
import { exactFormatOf } from '../../shared/model/weight-dtype.js';

export type LoadProgress = (doneBytes: number, totalBytes: number) => void;

/** Which matrices take the format that is asked for: all, or all but tables and small ones that decide much. */
export type Quantized = 'projections' | 'all';

/** Matrices that stay as they are shipped, unless all are quantized. */
const EXACT_MATRICES: ReadonlySet<DenseRole> = new Set([
  'embedding',
  'lmHead',
  'router',
  'alwaysWeight',
  'deltaBeta',
  'deltaDecay',
]);

/**
 * Loads everything but the experts: projections of mixers and what every row passes in the format asked for; embedding, LM head,
 * routers and gates as shipped; vectors as FP32. Asking for the model's shipped format keeps each projection's own, so that nothing is
 * rounded even where a checkpoint mixes types. fixed4, which rounds nothing either, is for the LM head too (an embedding in its place,
 * where there is none).
 * @throws what the device and the files give: DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, STORAGE_FAILED
 */
export async function loadDenseWeights(
  model: Model,
  source: ModelSource,
  projections: WeightFormat,
  onProgress?: LoadProgress,
  quantized: Quantized = 'projections',
): Promise<void> {
  const places = [...densePlaces(source.shape, source.tiedEmbeddings)];
  const totalBytes = places.reduce((sum, { role, layer }) => sum + storedBytes(source.dense(role, layer)), 0);
  let doneBytes = 0;
  for (const { role, layer } of places) {
    const tensor = source.dense(role, layer);
    await model.loadDense(role, layer, tensor, denseFormat(role, tensor, source, projections, quantized));
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
  const { expertLayers: layers, experts } = source.shape;
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
  quantized: Quantized,
): WeightFormat {
  if (isVectorRole(role)) return 'fp32';
  const exact = exactFormatOf(tensor.split);
  if (projections === source.shippedFormat) return exact;
  if (projections === 'fixed4' && exact !== 'bf16') return exact;
  if (quantized === 'all') return projections;
  const isHead = role === (source.tiedEmbeddings ? 'embedding' : 'lmHead');
  return !EXACT_MATRICES.has(role) || (projections === 'fixed4' && isHead) ? projections : exact;
}
