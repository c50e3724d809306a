import { EXPERT_PARTS } from './model-config/model-family.js';
import { exactFormatOf, isQuantizedSplit, rowBytes } from '../shared/model/weight-dtype.js';
import type { Split } from '../shared/model/tensor-source.js';
import type { Manifest } from './format/manifest.js';
import { alignUp, shardCodec } from './format/pack-layout.js';

/** How one plane of all expert matrices with one split is stored. */
export interface PlaneCompression {
  split: string;
  plane: number;
  codec: string;
  plainBytes: number;
  storedBytes: number;
  /** Stored over plain bytes. */
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
  /** With the padding after each chunk; and so many for a raw pack. */
  diskBytes: number;
  rawDiskBytes: number;
  /** By split and plane. */
  planes: PlaneCompression[];
}

/** What the codec made of a pack's experts, from the manifest alone. */
export function packCompression(manifest: Manifest): PackCompression {
  const planes = new Map<string, PlaneCompression>();
  let [shippedBytes, diskBytes, rawDiskBytes] = [0, 0, 0];
  for (const expert of manifest.experts) {
    for (const part of EXPERT_PARTS) {
      const { split, rows, columns, chunks } = expert[part];
      const matrixBytes = rows * shippedRowBytes(split, columns);
      shippedBytes += matrixBytes;
      rawDiskBytes += alignUp(matrixBytes);
      for (const chunk of chunks) {
        const codec = shardCodec(split, chunk.plane, manifest.codec) ?? 'raw';
        const key = `${split} ${chunk.plane}`;
        const sum = planes.get(key) ?? emptyPlane(split, chunk.plane, codec);
        planes.set(key, sum);
        sum.plainBytes += chunk.plain_bytes;
        sum.storedBytes += chunk.stored_bytes;
        sum.ratio = sum.storedBytes / sum.plainBytes;
        sum.chunks += 1;
        diskBytes += alignUp(chunk.stored_bytes);
        if (chunk.codec !== codec) sum.chunksLeftRaw += 1;
      }
    }
  }
  const byPlane = [...planes.values()].sort((a, b) => a.split.localeCompare(b.split) || a.plane - b.plane);
  const storedBytes = byPlane.reduce((sum, plane) => sum + plane.storedBytes, 0);
  return { shippedBytes, storedBytes, ratio: storedBytes / shippedBytes, diskBytes, rawDiskBytes, planes: byPlane };
}

/** FP16 values take three bytes where their exponents are apart. */
function shippedRowBytes(split: Split, columns: number): number {
  const format = exactFormatOf(split);
  return isQuantizedSplit(split) ? rowBytes(split, columns) : columns * (format === 'fp32' ? 4 : 2);
}

function emptyPlane(split: string, plane: number, codec: string): PlaneCompression {
  return { split, plane, codec, plainBytes: 0, storedBytes: 0, ratio: 0, chunks: 0, chunksLeftRaw: 0 };
}
