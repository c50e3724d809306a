import { exactFormatOf, isQuantizedSplit, rowBytes } from '../shared/model/weight-dtype.js';
import { type ChunkCodec, EXPERT_MATRICES, type Split } from '../shared/model/tensor-source.js';
import type { Manifest } from './format/manifest.js';
import { alignUp, shardCodec } from './format/pack-layout.js';

/** Storage of one plane of all expert matrices with one split. */
export interface PlaneCompression {
  split: string;
  plane: number;
  codec: string;
  plainBytes: number;
  storedBytes: number;
  /** Stored bytes divided by plain bytes. */
  ratio: number;
  chunks: number;
  /** Chunks that the codec did not make smaller. */
  chunksLeftRaw: number;
}

export interface PackCompression {
  /** Bytes of the experts as they were shipped. */
  shippedBytes: number;
  storedBytes: number;
  ratio: number;
  /** Bytes with the padding after each chunk, for this pack and for a raw pack. */
  diskBytes: number;
  rawDiskBytes: number;
  /** One entry for each split and plane. */
  planes: PlaneCompression[];
}

/** The effect of the codec on a pack's experts, from the manifest alone. */
export function packCompression(manifest: Manifest): PackCompression {
  const planes = new Map<string, PlaneCompression>();
  let [shippedBytes, diskBytes, rawDiskBytes] = [0, 0, 0];
  for (const expert of manifest.experts) {
    for (const part of EXPERT_MATRICES) {
      const { split, rows, columns, chunks } = expert[part];
      const matrixBytes = rows * shippedRowBytes(split, columns);
      shippedBytes += matrixBytes;
      rawDiskBytes += alignUp(matrixBytes);
      for (const chunk of chunks) {
        const key = `${split} ${chunk.plane}`;
        const sum =
          planes.get(key) ?? emptyPlane(split, chunk.plane, expectedCodec(split, chunk.plane, manifest.codec));
        planes.set(key, sum);
        sum.plainBytes += chunk.plain_bytes;
        sum.storedBytes += chunk.stored_bytes;
        sum.ratio = sum.storedBytes / sum.plainBytes;
        sum.chunks += 1;
        diskBytes += alignUp(chunk.stored_bytes);
        if (chunk.codec !== 'raw') sum.codec = chunk.codec;
        if (chunk.codec === 'raw') sum.chunksLeftRaw += 1;
      }
    }
  }
  for (const sum of planes.values()) if (sum.codec === 'raw') sum.chunksLeftRaw = 0;
  const byPlane = [...planes.values()].sort((a, b) => a.split.localeCompare(b.split) || a.plane - b.plane);
  const storedBytes = byPlane.reduce((sum, plane) => sum + plane.storedBytes, 0);
  return {
    shippedBytes,
    storedBytes,
    ratio: storedBytes / Math.max(1, shippedBytes),
    diskBytes,
    rawDiskBytes,
    planes: byPlane,
  };
}

/** FP16 values take three bytes if their exponents are in a separate plane, so the shipped size is computed from the format. */
function shippedRowBytes(split: Split, columns: number): number {
  const format = exactFormatOf(split);
  return isQuantizedSplit(split) ? rowBytes(split, columns) : columns * (format === 'fp32' ? 4 : 2);
}

/** Codec of a plane of which no chunk is coded. Quantized values may be left raw on purpose. */
function expectedCodec(split: Split, plane: number, codec: ChunkCodec): ChunkCodec {
  return isQuantizedSplit(split) ? 'raw' : (shardCodec(split, plane, codec) ?? 'raw');
}

function emptyPlane(split: string, plane: number, codec: string): PlaneCompression {
  return { split, plane, codec, plainBytes: 0, storedBytes: 0, ratio: 0, chunks: 0, chunksLeftRaw: 0 };
}
