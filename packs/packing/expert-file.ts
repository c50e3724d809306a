import {
  EXPERT_MATRICES,
  type ExpertMatrix,
  type ChunkCodec,
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
  blockRows,
  expertFileName,
  placeRawPlanes,
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

/** Writes experts-LAYER.bin: the experts in order; for each its raw planes, then its shards, then its biases. */
export async function writeExpertFile(
  model: ModelSource,
  layer: number,
  file: PackFile,
  context: PackingContext,
): Promise<Omit<FinishedFile, 'file'>> {
  const entries: ManifestExpert[] = [];
  let offsetBytes = 0;
  for (let expert = 0; expert < model.shape.experts; expert += 1) {
    const writer = new ExpertWriter(model.expert(layer, expert), offsetBytes, file, context);
    const written = await writer.write();
    offsetBytes = writer.endBytes;
    await file.completeThrough(offsetBytes);
    entries.push({ layer, expert, file: expertFileName(layer), ...written });
  }
  return { dense: [], experts: entries };
}

/** A matrix that is being written. */
interface MatrixInWork {
  source: TensorSource;
  split: PlaneSplit;
  rawChunks: ManifestChunk[];
  shardChunks: ManifestChunk[];
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
    const { rawPlanes, endBytes } = placeRawPlanes(split, source.rows, source.columns, this.endBytes);
    this.endBytes = endBytes;
    const rawChunks = rawPlanes.map(({ plane, offsetBytes, plainBytes }): ManifestChunk => {
      const bytes = { offset_bytes: offsetBytes, stored_bytes: plainBytes, plain_bytes: plainBytes };
      return { plane, codec: 'raw', ...bytes, crc32c: 0 };
    });
    const checksum = new ValuesChecksum(this.context.tools);
    return { source, split, rawChunks, shardChunks: [], checksum };
  }

  private async writeMatrix(matrix: MatrixInWork): Promise<void> {
    const { source, split } = matrix;
    const tensor = this.context.reader.open(source);
    try {
      if (isQuantizedSplit(split)) {
        for await (const range of tensor.next(source.rows)) await this.takeRowRange(matrix, range);
      } else {
        for (const range of shardRanges(source.rows, this.context.shards)) {
          await this.writeShard(matrix, range, tensor);
        }
      }
    } finally {
      tensor.dispose();
    }
  }

  private async writeShard(
    matrix: MatrixInWork,
    { firstRow, rows }: ShardRange,
    tensor: TensorRowReader,
  ): Promise<void> {
    const { source, split } = matrix;
    const widths = planeRowBytes(split, source.columns);
    const shards = shardedPlanes(split).map((plane) => ({ plane, rowBytes: widths[plane] ?? 0 }));
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
    for (const [index, { plane }] of shards.entries()) this.encode(matrix, plane, planeOf(plain, index));
  }

  /** Writes the raw planes of a row range, and returns the bytes of all planes. */
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
    this.context.onBytes(range.planes.reduce((sum, bytes) => sum + bytes.length, 0));
    return planes;
  }

  private encode(matrix: MatrixInWork, plane: number, plain: Uint8Array): void {
    const codec = shardCodec(matrix.split, plane, this.context.codec.codec) ?? 'raw';
    const blockBytes = blockRows(matrix.source.rows, matrix.source.columns) * matrix.source.columns;
    this.queue.add(plain.length, encodeShard(codec, plain, blockBytes, this.context), async (encoded) => {
      await this.file.writeAt(this.endBytes, encoded.stored);
      matrix.shardChunks.push({
        plane,
        codec: encoded.codec,
        offset_bytes: this.endBytes,
        stored_bytes: encoded.stored.length,
        plain_bytes: plain.length,
        crc32c: this.context.tools.crc32c(encoded.stored, 0),
      });
      this.endBytes = alignUp(this.endBytes + encoded.stored.length);
    });
  }
}

/** A shard is stored raw if its codec does not make it smaller. */
async function encodeShard(
  codec: ChunkCodec,
  plain: Uint8Array,
  blockBytes: number,
  { codec: setting, tools }: PackingContext,
): Promise<EncodedChunk> {
  if (codec === 'raw') return { codec, stored: plain };
  const level = codec === setting.codec ? (setting.level ?? 0) : 0;
  const stored = await tools.encodeChunk(codec, level, plain, blockBytes);
  return stored.length < plain.length ? { codec, stored } : { codec: 'raw', stored: plain };
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
