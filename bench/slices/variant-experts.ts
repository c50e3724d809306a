/** The experts of a checkpoint, quantized in one of the ways of table 1, in slots as the FP32 values that their codes stand for. */
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { withInterrupt } from '../../cli/client/interrupt.js';
import { FROM_STORAGE, PLAIN_LOADER, type Device, type ExpertSlots } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { expertRowSize } from '../../shared/model/model-shape.js';
import { allExperts, partSizes } from '../../shared/model/part-sizes.js';
import { SLICE_GROUP_COLUMNS } from '../../shared/model/weight-dtype.js';
import type { ExpertSource, ModelSource, TensorSource } from '../../shared/model/tensor-source.js';
import { rowOf, valuesOfMatrix, type ExpertMatrixValues } from './expert-matrices.js';
import type { QuantizedVariant } from './quantize-group.js';

const FLOAT_BYTES = 4;

/** A variant that leaves every weight as it is. */
export const LOSSLESS: QuantizedVariant = { name: 'lossless', valuesOf: (weights) => weights };

/** Slots that hold every expert of a model: slot = layer * experts + expert. */
export type VariantExperts = ExpertSlots;

/** The matrices of all experts, gate, up and down one after another, layer by layer. */
export async function readExperts(source: ModelSource): Promise<ExpertMatrixValues[]> {
  const matrices: ExpertMatrixValues[] = [];
  for (const { gate, up, down } of allExperts(source)) {
    for (const tensor of [gate, up, down]) {
      matrices.push(await valuesOfMatrix(`an expert of ${source.name}`, tensor));
    }
  }
  return matrices;
}

/**
 * Quantizes all experts and loads them. `maxRows`: most rows of one execute. Their file is gone afterwards, also where the process is asked to end.
 * @throws STORAGE_FULL, STORAGE_FAILED, DEVICE_OUT_OF_MEMORY, CANCELLED
 */
export async function loadVariant(
  device: Device,
  source: ModelSource,
  matrices: readonly ExpertMatrixValues[],
  variant: QuantizedVariant,
  maxRows: number,
): Promise<VariantExperts> {
  return withInterrupt(async (signal) => {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-slices-'));
    try {
      const path = join(directory, 'experts');
      await writeValues(path, matrices, variant, signal);
      return await loadFrom(path, device, source, maxRows, signal);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
}

async function loadFrom(
  path: string,
  device: Device,
  source: ModelSource,
  maxRows: number,
  signal: AbortSignal,
): Promise<VariantExperts> {
  const experts = expertsIn(path, source);
  const { expert: glu } = source.shape;
  const hiddenSize = expertRowSize(source.shape);
  const loader = { ...PLAIN_LOADER, ...partSizes(experts) };
  const slots = device.createExpertSlots({ hiddenSize, glu, format: 'fp32' }, experts.length, maxRows, loader);
  try {
    for (const [slot, expert] of experts.entries()) {
      requireWanted(signal);
      await slots.load(slot, slots.register(expert), FROM_STORAGE);
    }
    requireWanted(signal);
  } catch (thrown) {
    slots.dispose();
    throw thrown;
  }
  return slots;
}

function requireWanted(signal: AbortSignal): void {
  if (signal.aborted) throw new OdmoeError('CANCELLED', 'interrupted; nothing measured so far is kept');
}

async function writeValues(
  path: string,
  matrices: readonly ExpertMatrixValues[],
  variant: QuantizedVariant,
  signal: AbortSignal,
): Promise<void> {
  const file = await open(path, 'w');
  try {
    for (const matrix of matrices) {
      requireWanted(signal);
      await file.writeFile(new Uint8Array(valuesOf(matrix, variant).buffer));
    }
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  } finally {
    await file.close();
  }
}

/** The values that stand in the place of a matrix's weights, row-major. FP32 holds each of them exactly. */
export function valuesOf(matrix: ExpertMatrixValues, variant: QuantizedVariant): Float32Array {
  const values = new Float32Array(matrix.rows * matrix.columns);
  for (let row = 0; row < matrix.rows; row += 1) {
    const weights = rowOf(matrix, row);
    for (let first = 0; first < matrix.columns; first += SLICE_GROUP_COLUMNS) {
      const group = variant.valuesOf(weights.slice(first, first + SLICE_GROUP_COLUMNS));
      values.set(group, row * matrix.columns + first);
    }
  }
  return values;
}

/** The experts as they lie in the file. */
function expertsIn(path: string, source: ModelSource): ExpertSource[] {
  let offsetBytes = 0;
  const next = ({ rows, columns }: TensorSource): TensorSource => {
    const bytes = rows * columns * FLOAT_BYTES;
    const place = { plane: 0, path, offsetBytes, storedBytes: bytes, plainBytes: bytes };
    offsetBytes += bytes;
    return { rows, columns, split: 'none-fp32', chunks: [{ ...place, codec: 'raw', crc32c: null }], view: null };
  };
  return [...allExperts(source)].map((expert) => ({
    ...expert,
    gate: next(expert.gate),
    up: next(expert.up),
    down: next(expert.down),
  }));
}
