import type { Model } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type DenseRole, densePlaces, isVectorRole } from '../../shared/model/dense-roles.js';
import { storedBytes } from '../../shared/model/part-sizes.js';
import type { ExpertSource, ModelSource, TensorSource, WeightFormat } from '../../shared/model/tensor-source.js';
import { exactFormatOf } from '../../shared/model/weight-dtype.js';

export type LoadProgress = (doneBytes: number, totalBytes: number) => void;

/** Matrices that get the requested format: all, or only projections, without tables and small matrices that have much influence. */
export type Quantized = 'projections' | 'all';

/** Matrices that keep their shipped format, unless all are quantized. */
const EXACT_MATRICES: ReadonlySet<DenseRole> = new Set([
  'embedding',
  'lmHead',
  'router',
  'alwaysWeight',
  'deltaBeta',
  'deltaDecay',
]);

/** Matrices that keep their shipped format always: the weights of residual streams are few, and a step of theirs moves all streams. */
const ALWAYS_EXACT: ReadonlySet<DenseRole> = new Set(['mixerStreamMap', 'feedForwardStreamMap', 'finalStreamMap']);

/**
 * Loads all weights except the experts: projections of mixers and the always parts in the requested format; embedding, LM head, routers,
 * gates and maps of residual streams as shipped; vectors as FP32. With `shipped` each projection keeps its format. fixed4 does not round either; it is also used for the LM head (for the embedding, if that is the LM head).
 * @throws MODEL_CORRUPT: a vector has values that are no finite numbers; the errors of the device and the files: DEVICE_OUT_OF_MEMORY, PACK_CORRUPT, STORAGE_FAILED
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
    try {
      await model.loadDense(role, layer, tensor, denseFormat(role, tensor, source, projections, quantized));
    } catch (thrown) {
      throw withPlace(thrown, tensor, source.denseName?.(role, layer) ?? null);
    }
    doneBytes += storedBytes(tensor);
    onProgress?.(doneBytes, totalBytes);
  }
}

/** A device knows a tensor by its role alone: the error with the file and the name of the tensor. Other errors are as they were. */
function withPlace(thrown: unknown, { chunks }: TensorSource, name: string | null): unknown {
  if (!(thrown instanceof OdmoeError) || thrown.code !== 'MODEL_CORRUPT') return thrown;
  const path = chunks[0]?.path ?? '';
  if (path === '' || thrown.message.includes(path)) return thrown;
  const tensor = name === null ? '' : `tensor ${name}: `;
  return new OdmoeError(thrown.code, `${path}: ${tensor}${thrown.message}`, { cause: thrown });
}

/** Loads every expert, for a device that holds them all. @throws the errors of loadDenseWeights */
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

/** The format in which a dense tensor is loaded. */
export function denseFormat(
  role: DenseRole,
  tensor: TensorSource,
  source: Pick<ModelSource, 'tiedEmbeddings'>,
  projections: WeightFormat,
  quantized: Quantized,
): WeightFormat {
  if (isVectorRole(role)) return 'fp32';
  const exact = exactFormatOf(tensor.split);
  if (projections === 'shipped' || ALWAYS_EXACT.has(role)) return exact;
  if (projections === 'fixed4' && exact !== 'bf16') return exact;
  if (quantized === 'all') return projections;
  const isHead = role === (source.tiedEmbeddings ? 'embedding' : 'lmHead');
  return !EXACT_MATRICES.has(role) || (projections === 'fixed4' && isHead) ? projections : exact;
}
