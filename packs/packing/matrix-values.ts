import { isQuantizedSplit, planeRowBytes } from '../../shared/model/weight-dtype.js';
import type { ManifestChunk, ManifestExpertTensor } from '../format/manifest.js';
import { blockRows, shardedPlanes, shardRanges } from '../format/pack-layout.js';
import type { ByteTools } from './packing-context.js';

/** Approximate number of values that are joined at a time. */
const STEP_VALUES = 2 * 1024 * 1024;

/** Reads bytes of the file that holds a matrix. */
export type ReadBytes = (offsetBytes: number, sizeBytes: number) => Promise<Uint8Array>;

/**
 * The values of a pack's matrix as they were packed, row-major, one row range after another; for quantized values all codes and then all scales.
 * Memory holds the decoded chunks of one shard.
 * @throws PACK_CORRUPT if a chunk is not valid for its codec; the errors of `read`
 */
export async function* matrixValues(
  matrix: ManifestExpertTensor,
  read: ReadBytes,
  tools: Pick<ByteTools, 'decodeChunk' | 'joinPlanes'>,
): AsyncGenerator<Uint8Array> {
  const { split, rows, columns } = matrix;
  const widths = planeRowBytes(split, columns);
  const chunksOf = widths.map((_, plane) => matrix.chunks.filter((chunk) => chunk.plane === plane));
  const blockBytes = blockRows(rows, columns) * columns;
  const decode = async (chunk: ManifestChunk): Promise<Uint8Array> => {
    const stored = await read(chunk.offset_bytes, chunk.stored_bytes);
    return chunk.codec === 'raw' ? stored : tools.decodeChunk(chunk.codec, stored, chunk.plain_bytes, blockBytes);
  };
  if (isQuantizedSplit(split)) {
    for (const chunk of chunksOf.flat()) {
      if (chunk.codec === 'raw') yield* rawBytes(chunk, read);
      else yield await decode(chunk);
    }
    return;
  }
  const sharded = shardedPlanes(split, 'raw');
  const rangeRows = Math.max(1, Math.floor(STEP_VALUES / columns));
  for (const [shard, { firstRow, rows: shardRows }] of shardRanges(rows, chunksOf[0]?.length ?? 1).entries()) {
    const decoded = await Promise.all(
      widths.map(async (_, plane) => {
        const chunk = sharded.includes(plane) ? chunksOf[plane]?.[shard] : undefined;
        return chunk === undefined ? null : decode(chunk);
      }),
    );
    for (let from = 0; from < shardRows; from += rangeRows) {
      const count = Math.min(rangeRows, shardRows - from);
      const planes = await Promise.all(
        widths.map(async (width, plane) => {
          const shardPlane = decoded[plane] ?? null;
          if (shardPlane !== null) return shardPlane.subarray(from * width, (from + count) * width);
          const begin = chunksOf[plane]?.[0]?.offset_bytes ?? 0;
          return read(begin + (firstRow + from) * width, count * width);
        }),
      );
      yield tools.joinPlanes(planes, split);
    }
  }
}

async function* rawBytes(chunk: ManifestChunk, read: ReadBytes): AsyncGenerator<Uint8Array> {
  for (let done = 0; done < chunk.stored_bytes; done += STEP_VALUES) {
    yield await read(chunk.offset_bytes + done, Math.min(STEP_VALUES, chunk.stored_bytes - done));
  }
}
