import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { requirePresent } from '../../shared/errors/assert-invariant.js';
import type { ModelTensor } from '../../shared/checkpoint/checkpoint.js';
import { EXPERT_PARTS, type ExpertPart } from '../../shared/model/model-family.js';
import type { ChunkCodec } from '../../shared/model/tensor-source.js';
import { PLANE_BYTES_PER_VALUE, planeSplit, valueBytes, type PlaneSplit } from '../../shared/model/weight-dtype.js';
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
import { type EncodedChunk, EncodeQueue } from './encode-queue.js';
import type { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';

export type ExpertTensors = Readonly<Record<ExpertPart, ModelTensor>>;

/** Writes experts-LAYER.bin: the experts in order, of each its raw planes and then its shards. */
export async function writeExpertFile(
  layer: number,
  experts: readonly ExpertTensors[],
  file: PackFile,
  context: PackingContext,
): Promise<Omit<FinishedFile, 'file'>> {
  const entries: ManifestExpert[] = [];
  let offsetBytes = 0;
  for (const [expert, tensors] of experts.entries()) {
    const writer = new ExpertWriter(tensors, offsetBytes, file, context);
    const { gate, up, down } = await writer.write();
    offsetBytes = writer.endBytes;
    await file.completeThrough(offsetBytes);
    entries.push({ layer, expert, file: expertFileName(layer), gate, up, down });
  }
  return { dense: [], experts: entries };
}

/** A matrix that is being written. */
interface MatrixInWork {
  tensor: ModelTensor;
  rows: number;
  columns: number;
  split: PlaneSplit;
  rawChunks: ManifestChunk[];
  shardChunks: ManifestChunk[];
  sourceCrc32c: number;
}

/**
 * Streams one expert into its chunks. Raw planes go to places known from the start; the shards of all three matrices go through the
 * encoders side by side and follow in order.
 */
class ExpertWriter {
  /** Where the next expert may begin, once write() is done. */
  endBytes: number;
  private readonly matrices: Readonly<Record<ExpertPart, MatrixInWork>>;
  private readonly queue: EncodeQueue;

  constructor(
    tensors: ExpertTensors,
    beginBytes: number,
    private readonly file: PackFile,
    private readonly context: PackingContext,
  ) {
    this.endBytes = beginBytes;
    const begin = (part: ExpertPart): MatrixInWork => this.beginMatrix(tensors[part]);
    this.matrices = { gate: begin('gate'), up: begin('up'), down: begin('down') };
    this.queue = new EncodeQueue(context.tools.encodesAtOnce);
  }

  async write(): Promise<Readonly<Record<ExpertPart, ManifestExpertTensor>>> {
    try {
      for (const part of EXPERT_PARTS) await this.writeMatrix(this.matrices[part]);
      await this.queue.drain();
    } catch (thrown) {
      await this.queue.abandon();
      throw thrown;
    }
    const { gate, up, down } = this.matrices;
    return { gate: manifestEntry(gate), up: manifestEntry(up), down: manifestEntry(down) };
  }

  private beginMatrix(tensor: ModelTensor): MatrixInWork {
    const [rows = 1, columns = 1] = tensor.dimensions;
    const split = planeSplit(tensor.dtype, this.context.codec.codec);
    const { rawPlanes, endBytes } = placeRawPlanes(split, rows * columns, this.endBytes);
    this.endBytes = endBytes;
    const rawChunks = rawPlanes.map(({ plane, offsetBytes, plainBytes }): ManifestChunk => {
      const bytes = { offset_bytes: offsetBytes, stored_bytes: plainBytes, plain_bytes: plainBytes };
      return { plane, codec: 'raw', ...bytes, crc32c: 0 };
    });
    return { tensor, rows, columns, split, rawChunks, shardChunks: [], sourceCrc32c: 0 };
  }

  private async writeMatrix(matrix: MatrixInWork): Promise<void> {
    for (const range of shardRanges(matrix.rows, matrix.columns, this.context.shards)) {
      const sharded = shardedPlanes(matrix.split);
      await this.queue.makeRoom(sharded.length, range.values * sharded.length);
      const plain = await this.readShard(matrix, range, sharded);
      for (const [index, plane] of sharded.entries()) {
        this.encode(
          matrix,
          plane,
          requirePresent(plain[index], () => `plane ${plane} of a shard has been read.`),
        );
      }
    }
  }

  /** Reads a shard's values, writes their raw planes, and gives its plain bytes of the planes that are cut into shards. */
  private async readShard(matrix: MatrixInWork, range: ShardRange, sharded: number[]): Promise<Uint8Array[]> {
    const { tensor, split } = matrix;
    const { reader, tools } = this.context;
    const bytesPerValue = valueBytes(tensor.dtype);
    const plain = sharded.map(() => new Uint8Array(range.values));
    const sourceOffset = tensor.offsetBytes + range.firstValue * bytesPerValue;
    let value = 0;
    for await (const piece of reader.pieces(tensor.path, sourceOffset, range.values * bytesPerValue)) {
      matrix.sourceCrc32c = tools.crc32c(piece, matrix.sourceCrc32c);
      const planes = tools.splitPlanes(piece, split);
      for (const chunk of matrix.rawChunks) {
        await this.writeRaw(matrix, chunk, range.firstValue + value, planeOf(planes, chunk.plane));
      }
      for (const [index, plane] of sharded.entries()) plain[index]?.set(planeOf(planes, plane), value);
      value += piece.length / bytesPerValue;
      this.context.onBytes(piece.length);
    }
    return plain;
  }

  private async writeRaw(
    matrix: MatrixInWork,
    chunk: ManifestChunk,
    firstValue: number,
    bytes: Uint8Array,
  ): Promise<void> {
    const bytesPerValue = requirePresent(
      PLANE_BYTES_PER_VALUE[matrix.split][chunk.plane],
      () => `plane ${chunk.plane} has a width.`,
    );
    await this.file.writeAt(chunk.offset_bytes + firstValue * bytesPerValue, bytes);
    chunk.crc32c = this.context.tools.crc32c(bytes, chunk.crc32c);
  }

  private encode(matrix: MatrixInWork, plane: number, plain: Uint8Array): void {
    const codec = shardCodec(matrix.split, plane, this.context.codec.codec) ?? 'raw';
    const blockBytes = blockRows(matrix.rows, matrix.columns) * matrix.columns;
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

/** A shard that its codec does not make smaller is stored raw. */
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

function manifestEntry(matrix: MatrixInWork): ManifestExpertTensor {
  const { tensor, rows, columns, split } = matrix;
  return {
    name: tensor.name,
    dtype: tensor.dtype,
    rows,
    columns,
    split,
    source_crc32c: matrix.sourceCrc32c,
    // Sorting keeps the shards of a plane in order.
    chunks: [...matrix.shardChunks, ...matrix.rawChunks].sort((a, b) => a.plane - b.plane),
  };
}

function planeOf(planes: Uint8Array[], plane: number): Uint8Array {
  const bytes = planes[plane];
  if (bytes === undefined)
    throw new OdmoeError('INTERNAL', `splitting gave ${planes.length} planes, plane ${plane} is needed`);
  return bytes;
}
