import { openTensor } from '../../native/index.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { TensorSource } from '../../shared/model/tensor-source.js';

/** A matrix of an expert, with the bytes of its BF16 values. */
export interface ExpertMatrixValues {
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  /** Row-major BF16, little-endian. */
  readonly bytes: Uint8Array;
}

/**
 * Yields the matrices of all experts of a checkpoint in the order of their names.
 * @throws USAGE when the experts are not BF16; MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function* expertMatrices(directory: string): AsyncGenerator<ExpertMatrixValues> {
  const { tensors } = await openCheckpoint(directory);
  const ofExperts = tensors.filter(({ place }) => place.kind === 'expert');
  for (const { name, source } of ofExperts.sort((one, other) => (one.name < other.name ? -1 : 1))) {
    yield await valuesOfMatrix(name, source);
  }
}

/**
 * Reads a matrix of an expert. `name`: the name of the tensor, or of the expert.
 * @throws USAGE when it is not BF16; MODEL_CORRUPT, STORAGE_FAILED
 */
export async function valuesOfMatrix(name: string, source: TensorSource): Promise<ExpertMatrixValues> {
  if (source.split !== 'none-bf16') {
    throw new OdmoeError('USAGE', `${name} is not BF16; give a checkpoint whose experts are`);
  }
  return { name, rows: source.rows, columns: source.columns, bytes: await bytesOf(source) };
}

async function bytesOf(source: TensorSource): Promise<Uint8Array> {
  const tensor = openTensor(source);
  try {
    const [bytes = new Uint8Array(0)] = await tensor.read(source.rows);
    return bytes;
  } finally {
    tensor.dispose();
  }
}

/** The values of a row. */
export function rowOf({ columns, bytes }: ExpertMatrixValues, row: number): number[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset + row * columns * 2, columns * 2);
  const words = new Uint32Array(columns);
  // A BF16 value is the upper half of an FP32 one.
  for (let column = 0; column < columns; column += 1) words[column] = view.getUint16(column * 2, true) * 2 ** 16;
  return [...new Float32Array(words.buffer)];
}
