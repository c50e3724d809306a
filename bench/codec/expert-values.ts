/** Expert matrices as plain BF16 values, in whatever form they are stored. */
import { decodeChunk, joinPlanes } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openFile, readFailure } from '../../shared/base/files/read-file.js';
import { readInto } from '../../packs/checkpoint/safetensors-file.js';
import type { ChunkLocation, ModelSource, TensorSource } from '../../shared/model/tensor-source.js';

export interface TensorValues {
  name: string;
  columns: number;
  /** Row-major BF16, little-endian. */
  values: Uint8Array;
}

/**
 * Reads the gate matrix of the first expert, then those of further experts, as many as fit into `limitBytes`, one after another.
 * @throws USAGE when the experts are not BF16; STORAGE_FAILED, PACK_CORRUPT
 */
export async function expertValues(source: ModelSource, limitBytes: number): Promise<TensorValues[]> {
  const { expertLayers, experts } = source.shape;
  const matrices: Uint8Array[] = [];
  let columns = 0;
  let bytes = 0;
  for (let index = 0; index < expertLayers * experts; index += 1) {
    const { gate } = source.expert(Math.floor(index / experts), index % experts);
    if (index > 0 && bytes + gate.rows * gate.columns * 2 > limitBytes) break;
    const values = await matrixValues(gate, source.directory);
    matrices.push(values);
    columns = gate.columns;
    bytes += values.length;
  }
  return [
    { name: 'first expert, gate', columns, values: matrices[0] ?? new Uint8Array(0) },
    { name: `gates of ${matrices.length} experts`, columns, values: Buffer.concat(matrices) },
  ];
}

async function matrixValues({ rows, columns, split, chunks }: TensorSource, directory: string): Promise<Uint8Array> {
  if (split !== 'none-bf16' && split !== 'bf16-e8-sm8') {
    throw new OdmoeError('USAGE', `the experts of ${directory} are not BF16; give a model whose experts are`);
  }
  const planes = await Promise.all(
    (split === 'none-bf16' ? [0] : [0, 1]).map(async (plane) => {
      const plain = chunks.filter((chunk) => chunk.plane === plane).map((chunk) => plainBytes(chunk, columns));
      return Buffer.concat(await Promise.all(plain));
    }),
  );
  const values = joinPlanes(planes, split);
  if (values.length === rows * columns * 2) return values;
  throw new OdmoeError('PACK_CORRUPT', `${directory}: a matrix of an expert is not complete; pack the model again`);
}

async function plainBytes(chunk: ChunkLocation, columns: number): Promise<Uint8Array> {
  const stored = new Uint8Array(chunk.storedBytes);
  try {
    const handle = await openFile(chunk.path);
    try {
      await readInto(handle, chunk.path, chunk.offsetBytes, stored);
    } finally {
      await handle.close();
    }
  } catch (thrown) {
    const remedy = 'copy or pack the model again';
    throw readFailure(thrown, chunk.path, { missing: 'STORAGE_FAILED', invalid: 'PACK_CORRUPT', remedy });
  }
  return decodeChunk(chunk.codec, stored, chunk.plainBytes, columns);
}
