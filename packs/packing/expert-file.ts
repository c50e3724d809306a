import {
  EXPERT_MATRICES,
  type ExpertMatrix,
  type ExpertSource,
  type ModelSource,
  type TensorSource,
} from '../../shared/model/tensor-source.js';
import {
  exactFormatOf,
  isQuantizedSplit,
  planeRowBytes,
  planeSplit,
  type PlaneSplit,
} from '../../shared/model/weight-dtype.js';
import type { FinishedFile, ManifestChunk, ManifestExpert, ManifestExpertTensor } from '../format/manifest.js';
import {
  alignUp,
  expertFileName,
  isScalesPlane,
  placeRawPlanes,
  planeBlockBytes,
  planeShards,
  shardCodec,
  shardedPlanes,
  shardRanges,
  type ShardRange,
} from '../format/pack-layout.js';
import { planeOf } from './dense-file.js';
import { type EncodedChunk, EncodeQueue } from './encode-queue.js';
import type { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';
import type { TensorRowRange, TensorRowReader } from './source-reader.js';
import { ValuesChecksum } from './values-checksum.js';

/** Writes experts-LAYER.bin, or another file of this name: the experts in order; for each its raw planes, then its shards and scales, then its biases. */
export async function writeExpertFile(
  model: ModelSource,
  layer: number,
  file: PackFile,
  context: PackingContext,
  name = expertFileName(layer),
): Promise<Omit<FinishedFile, 'file'>> {
  const entries: ManifestExpert[] = [];
  let offsetBytes = 0;
  for (let expert = 0; expert < model.shape.experts; expert += 1) {
    const writer = new ExpertWriter(model.expert(layer, expert), offsetBytes, file, context);
    const written = await writer.write();
    offsetBytes = writer.endBytes;
    await file.completeThrough(offsetBytes);
    entries.push({ layer, expert, file: name, ...written });
  }
  return { dense: [], experts: entries };
}

/** The plane of scales, in splits of quantized values. */
const SCALES_PLANE = 1;
/** The least level of zstd for scales: lower ones hardly look for repetitions (docs/pack-format.md, "Levels"). */
const SCALES_ZSTD_LEVEL = 3;

/** A chunk and the bytes that it was made from. */
interface EncodedPlain extends EncodedChunk {
  plain: Uint8Array;
}

/** A matrix that is being written. */
interface MatrixInWork {
  source: TensorSource;
  split: PlaneSplit;
  rawChunks: ManifestChunk[];
  shardChunks: ManifestChunk[];
  /** Scales of the rows that have been read; null: the split has none. */
  scales: Uint8Array | null;
  checksum: ValuesChecksum;
}

/**
 * Writes one expert's chunks as its values are read. The places of raw planes are known from the start. The shards of all three matrices are
 * encoded side by side and follow in order.
 */
class ExpertWriter {
  /** Offset at which the next expert may begin, after write() is done. */
  endBytes: number;
  private readonly matrices: Readonly<Record<ExpertMatrix, MatrixInWork>>;
  private readonly queue: EncodeQueue;

  constructor(
    private readonly expert: ExpertSource,
    beginBytes: number,
    private readonly file: PackFile,
    private readonly context: PackingContext,
  ) {
    this.endBytes = beginBytes;
    const begin = (part: ExpertMatrix): MatrixInWork => this.beginMatrix(expert[part]);
    this.matrices = { gate: begin('gate'), up: begin('up'), down: begin('down') };
    this.queue = new EncodeQueue(context.tools.encodesAtOnce);
  }

  async write(): Promise<Pick<ManifestExpert, ExpertMatrix | 'biases'>> {
    try {
      for (const part of EXPERT_MATRICES) await this.writeMatrix(this.matrices[part]);
      await this.queue.drain();
    } catch (thrown) {
      await this.queue.abandon();
      throw thrown;
    }
    const { gate, up, down } = this.matrices;
    const biases = await this.writeBiases();
    return { gate: manifestEntry(gate), up: manifestEntry(up), down: manifestEntry(down), biases };
  }

  private async writeBiases(): Promise<ManifestExpert['biases']> {
    const { biases } = this.expert;
    if (biases === null) return null;
    const bytes = biasBytes(biases);
    await this.file.writeAt(this.endBytes, bytes);
    const crc32c = this.context.tools.crc32c(bytes, 0);
    const extent = { offset_bytes: this.endBytes, stored_bytes: bytes.length, crc32c };
    this.endBytes = alignUp(this.endBytes + bytes.length);
    return extent;
  }

  private beginMatrix(source: TensorSource): MatrixInWork {
    const split = planeSplit(exactFormatOf(source.split), this.context.codec.codec);
    const { codec } = this.context.codec;
    const { rawPlanes, endBytes } = placeRawPlanes(split, codec, source.rows, source.columns, this.endBytes);
    this.endBytes = endBytes;
    const rawChunks = rawPlanes.map(({ plane, offsetBytes, plainBytes }): ManifestChunk => {
      const bytes = { offset_bytes: offsetBytes, stored_bytes: plainBytes, plain_bytes: plainBytes };
      return { plane, codec: 'raw', ...bytes, crc32c: 0 };
    });
    const checksum = new ValuesChecksum(this.context.tools);
    return { source, split, rawChunks, shardChunks: [], scales: null, checksum };
  }

  private async writeMatrix(matrix: MatrixInWork): Promise<void> {
    const { source, split } = matrix;
    const tensor = this.context.reader.open(source);
    try {
      if (shardedPlanes(split, this.context.codec.codec).length === 0) {
        for await (const range of tensor.next(source.rows)) await this.takeRowRange(matrix, range);
      } else {
        for (const range of shardRanges(source.rows, this.context.shards)) {
          await this.writeShard(matrix, range, tensor);
        }
      }
      await this.writeScales(matrix);
    } finally {
      tensor.dispose();
    }
  }

  /** Adds the scales of a matrix whose rows have all been read, in shards if they are then smaller on the disk. */
  private async writeScales(matrix: MatrixInWork): Promise<void> {
    const { scales, source, split } = matrix;
    const { codec, shards: most } = this.context;
    matrix.scales = null;
    if (scales === null) return;
    const rowBytes = scales.length / source.rows;
    const count = planeShards(split, SCALES_PLANE, codec.codec, most);
    const shards = shardRanges(source.rows, count).map(({ firstRow, rows }) =>
      scales.subarray(firstRow * rowBytes, (firstRow + rows) * rowBytes),
    );
    await this.queue.makeRoom(shards.length, scales.length);
    const encode = async (): Promise<EncodedPlain[]> => {
      const encoded = await Promise.all(shards.map(async (plain) => this.encodeShard(matrix, SCALES_PLANE, plain)));
      const diskBytes = encoded.reduce((sum, { stored }) => sum + alignUp(stored.length), 0);
      return diskBytes < alignUp(scales.length) ? encoded : [{ codec: 'raw', stored: scales, plain: scales }];
    };
    this.queue.add(scales.length, encode(), async (encoded) => {
      for (const chunk of encoded) await this.writeChunk(matrix, SCALES_PLANE, chunk);
    });
  }

  private async writeShard(
    matrix: MatrixInWork,
    { firstRow, rows }: ShardRange,
    tensor: TensorRowReader,
  ): Promise<void> {
    const { source, split } = matrix;
    const widths = planeRowBytes(split, source.columns);
    const shards = shardedPlanes(split, this.context.codec.codec).map((plane) => ({
      plane,
      rowBytes: widths[plane] ?? 0,
    }));
    await this.queue.makeRoom(
      shards.length,
      shards.reduce((sum, { rowBytes }) => sum + rows * rowBytes, 0),
    );
    const plain = shards.map(({ rowBytes }) => new Uint8Array(rows * rowBytes));
    for await (const range of tensor.next(rows)) {
      const planes = await this.takeRowRange(matrix, range);
      for (const [index, { plane, rowBytes }] of shards.entries()) {
        plain[index]?.set(planeOf(planes, plane), (range.firstRow - firstRow) * rowBytes);
      }
    }
    for (const [index, { plane }] of shards.entries()) {
      const shard = planeOf(plain, index);
      const encoded = this.encodeShard(matrix, plane, shard);
      this.queue.add(shard.length, encoded, async (chunk) => this.writeChunk(matrix, plane, chunk));
    }
  }

  /** Writes the raw planes of a row range, keeps its scales, and returns the bytes of all planes. */
  private async takeRowRange(matrix: MatrixInWork, range: TensorRowRange): Promise<Uint8Array[]> {
    const { source, split, checksum, rawChunks } = matrix;
    const { tools } = this.context;
    checksum.add(range.planes);
    const planes = isQuantizedSplit(split) ? range.planes : tools.splitPlanes(planeOf(range.planes, 0), split);
    const widths = planeRowBytes(split, source.columns);
    for (const chunk of rawChunks) {
      const bytes = planeOf(planes, chunk.plane);
      await this.file.writeAt(chunk.offset_bytes + range.firstRow * (widths[chunk.plane] ?? 0), bytes);
      chunk.crc32c = tools.crc32c(bytes, chunk.crc32c);
    }
    for (const [plane, bytes] of planes.entries()) {
      if (!isScalesPlane(split, plane)) continue;
      const rowBytes = widths[plane] ?? 0;
      matrix.scales ??= new Uint8Array(source.rows * rowBytes);
      matrix.scales.set(bytes, range.firstRow * rowBytes);
    }
    this.context.onBytes(range.planes.reduce((sum, bytes) => sum + bytes.length, 0));
    return planes;
  }

  /** A shard is stored raw if its codec does not make it smaller. */
  private async encodeShard({ source, split }: MatrixInWork, plane: number, plain: Uint8Array): Promise<EncodedPlain> {
    const { codec: setting, tools } = this.context;
    const raw: EncodedPlain = { codec: 'raw', stored: plain, plain };
    const codec = shardCodec(split, plane, setting.codec) ?? 'raw';
    const rowBytes = planeRowBytes(split, source.columns)[plane] ?? 0;
    const blockBytes = planeBlockBytes(source.rows, source.columns, rowBytes);
    if (codec === 'raw' || blockBytes === null) return raw;
    const ownLevel = codec === setting.codec ? (setting.level ?? 0) : 0;
    const level = plane === SCALES_PLANE && codec === 'zstd' ? Math.max(SCALES_ZSTD_LEVEL, ownLevel) : ownLevel;
    const stored = await tools.encodeChunk(codec, level, plain, blockBytes);
    return stored.length < plain.length ? { codec, stored, plain } : raw;
  }

  private async writeChunk(matrix: MatrixInWork, plane: number, { codec, stored, plain }: EncodedPlain): Promise<void> {
    await this.file.writeAt(this.endBytes, stored);
    matrix.shardChunks.push({
      plane,
      codec,
      offset_bytes: this.endBytes,
      stored_bytes: stored.length,
      plain_bytes: plain.length,
      crc32c: this.context.tools.crc32c(stored, 0),
    });
    this.endBytes = alignUp(this.endBytes + stored.length);
  }
}

/** Biases as a pack stores them. */
export function biasBytes({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function manifestEntry({ source, split, checksum, shardChunks, rawChunks }: MatrixInWork): ManifestExpertTensor {
  return {
    rows: source.rows,
    columns: source.columns,
    split,
    source_crc32c: checksum.all,
    // Sorting leaves the shards of a plane in order.
    chunks: [...shardChunks, ...rawChunks].sort((a, b) => a.plane - b.plane),
  };
}
