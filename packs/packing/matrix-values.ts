import { PLANE_BYTES_PER_VALUE } from '../../shared/model/weight-dtype.js';
import type { ManifestChunk, ManifestExpertTensor } from '../format/manifest.js';
import { blockRows, shardedPlanes } from '../format/pack-layout.js';
import type { ByteTools } from './packing-context.js';

/** Values put together at a time. */
const PIECE_VALUES = 2 * 1024 * 1024;

/** Bytes of the file that a matrix lies in. */
export type ReadBytes = (offsetBytes: number, sizeBytes: number) => Promise<Uint8Array>;

/**
 * The values of a matrix of a pack as they were shipped, row-major, piece by piece; holds the decoded chunks of one shard.
 * @throws PACK_CORRUPT when a chunk is not what its codec writes; what `read` throws
 */
export async function* matrixValues(
  matrix: ManifestExpertTensor,
  read: ReadBytes,
  tools: Pick<ByteTools, 'decodeChunk' | 'joinPlanes'>,
): AsyncGenerator<Uint8Array> {
  const { split } = matrix;
  const widths = PLANE_BYTES_PER_VALUE[split];
  const chunksOf = widths.map((_, plane) => matrix.chunks.filter((chunk) => chunk.plane === plane));
  const sharded = shardedPlanes(split);
  const blockBytes = blockRows(matrix.rows, matrix.columns) * matrix.columns;
  const decode = async (chunk: ManifestChunk | undefined): Promise<Uint8Array | null> => {
    if (chunk === undefined) return null;
    const stored = await read(chunk.offset_bytes, chunk.stored_bytes);
    return chunk.codec === 'raw' ? stored : tools.decodeChunk(chunk.codec, stored, chunk.plain_bytes, blockBytes);
  };
  let shardBegin = 0;
  for (const [shard, { plain_bytes: shardValues }] of (chunksOf[0] ?? []).entries()) {
    const decoded = await Promise.all(
      widths.map(async (_, plane) => (sharded.includes(plane) ? decode(chunksOf[plane]?.[shard]) : null)),
    );
    for (let from = 0; from < shardValues; from += PIECE_VALUES) {
      const values = Math.min(PIECE_VALUES, shardValues - from);
      const planes = await Promise.all(
        widths.map(async (width, plane) => {
          const shardPlane = decoded[plane] ?? null;
          if (shardPlane !== null) return shardPlane.subarray(from, from + values);
          const begin = chunksOf[plane]?.[0]?.offset_bytes ?? 0;
          return read(begin + (shardBegin + from) * width, values * width);
        }),
      );
      yield tools.joinPlanes(planes, split);
    }
    shardBegin += shardValues;
  }
}
