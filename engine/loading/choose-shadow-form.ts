/** The form of a shadow under `shadow.precision: auto`, by the memory of its device and the recall that was measured with the model. */
import type { CudaStatus, DeviceInfo, DeviceOptions } from '../../native/index.js';
import {
  AUTO_PRECISIONS,
  chooseShadowPrecision,
  type FormRecall,
  type ShadowChoice,
} from '../../shared/decisions/slices/choose-shadow-form.js';
import { densePlaces } from '../../shared/model/dense-roles.js';
import { allExperts } from '../../shared/model/part-sizes.js';
import type { ModelSource, WeightFormat } from '../../shared/model/tensor-source.js';
import { isSlicedSplit, planeRowBytes } from '../../shared/model/weight-dtype.js';
import { denseFormat, type Quantized } from './load-weights.js';
import { shadowForm, type ShadowForm } from './shadow-form.js';

/** Bytes of a row on a device, for formats that are no split of a file. */
const ROW_BYTES: Readonly<Record<'bf16' | 'fp16' | 'fp32' | 'int8' | 'nf4' | 'fixed4', (columns: number) => number>> = {
  bf16: (columns) => 2 * columns,
  fp16: (columns) => 2 * columns,
  fp32: (columns) => 4 * columns,
  int8: (columns) => columns + 4,
  nf4: (columns) => Math.ceil(columns / 64) * 36,
  fixed4: (columns) => 1.53 * columns,
};

/** The memory of a shadow's weights, except for what a device adds to align them. */
export function shadowBytes(source: ModelSource, { format, sliced }: ShadowForm, quantized: Quantized): number {
  let bytes = 0;
  for (const { role, layer } of densePlaces(source.shape, source.tiedEmbeddings)) {
    const tensor = source.dense(role, layer);
    const stored = denseFormat(role, tensor, source, format, quantized);
    bytes += tensor.rows * rowBytes(stored, tensor.columns, true);
  }
  const ofExperts = sliced?.split ?? format;
  const withLower = sliced?.reading === 'both';
  for (const { gate, up, down } of allExperts(source)) {
    for (const { rows, columns } of [gate, up, down]) bytes += rows * rowBytes(ofExperts, columns, withLower);
  }
  return bytes;
}

function rowBytes(format: WeightFormat, columns: number, withLower: boolean): number {
  if (isPlain(format)) return ROW_BYTES[format](columns);
  const planes = planeRowBytes(format, columns);
  return sum(isSlicedSplit(format) && !withLower ? planes.slice(0, 1) : planes);
}

function isPlain(format: WeightFormat): format is keyof typeof ROW_BYTES {
  return format in ROW_BYTES;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

export interface ShadowMemory {
  readonly info: DeviceInfo;
  readonly options: Pick<DeviceOptions, 'backend' | 'device'>;
  readonly cudaStatus: () => CudaStatus;
  readonly freeHostMemoryBytes: () => number;
}

/** Memory that a device has for a shadow: the rest of its budget; without a budget a GPU's memory, or what is free on the host. */
export function memoryForShadow({ info, options, cudaStatus, freeHostMemoryBytes }: ShadowMemory): number {
  if (info.budgetBytes > 0) return info.budgetBytes - info.usedBytes;
  if (options.backend === 'cpu') return freeHostMemoryBytes();
  const gpu = cudaStatus().devices.find(({ index }) => index === options.device);
  return (gpu?.memoryBytes ?? 0) - info.usedBytes;
}

/** `recall`: as it was measured with the model; null: it was not. `memoryBytes`: as memoryForShadow gives it. */
export function chooseShadowForm(
  source: ModelSource,
  quantized: Quantized,
  recall: readonly FormRecall[] | null,
  memoryBytes: number,
): ShadowChoice {
  const candidates = AUTO_PRECISIONS.map((precision) => ({
    precision,
    bytes: shadowBytes(source, shadowForm(precision), quantized),
    recall: recall?.find((measured) => measured.precision === precision)?.recall ?? null,
  }));
  return chooseShadowPrecision(candidates, memoryBytes);
}
