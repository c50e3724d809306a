import { OdmoeError } from '../../shared/errors/index.js';
import type { ModelTensor } from '../../shared/model/checkpoint.js';
import { EXPERT_PARTS, type ExpertPart } from '../../shared/model/model-family.js';
import { planeSplit, valueBytes, type PlaneSplit } from '../../shared/model/weight-dtype.js';
import type { FinishedFile, ManifestChunk, ManifestExpert, ManifestExpertTensor } from '../../shared/pack/manifest.js';
import {
  alignUp,
  expertFileName,
  placeRawPlanes,
  shardRanges,
  type ShardRange,
} from '../../shared/pack/pack-layout.js';
import { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';

export type ExpertTensors = Readonly<Record<ExpertPart, ModelTensor>>;

/** Writes experts-LAYER.bin: the experts in order, of each gate, up and down, of each its planes cut into chunks. */
export async function writeExpertFile(
  layer: number,
  experts: readonly ExpertTensors[],
  file: PackFile,
  context: PackingContext,
): Promise<Omit<FinishedFile, 'file'>> {
  const entries: ManifestExpert[] = [];
  let offsetBytes = 0;
  for (const [expert, tensors] of experts.entries()) {
    const written: Partial<Record<ExpertPart, ManifestExpertTensor>> = {};
    for (const part of EXPERT_PARTS) {
      const writer = new ExpertTensorWriter(tensors[part], offsetBytes, file, context);
      written[part] = await writer.write();
      offsetBytes = writer.endBytes;
      await file.completeThrough(offsetBytes);
    }
    const { gate, up, down } = written as Record<ExpertPart, ManifestExpertTensor>;
    entries.push({ layer, expert, file: expertFileName(layer), gate, up, down });
  }
  return { dense: [], experts: entries };
}

/** Streams one matrix into planes: plane 0 shard by shard through the codec, the others raw to places known from the start. */
class ExpertTensorWriter {
  /** Where the next tensor may begin, once write() is done. */
  endBytes: number;
  private readonly values: number;
  private readonly split: PlaneSplit;
  private readonly rawChunks: ManifestChunk[];
  private readonly shardChunks: ManifestChunk[] = [];
  private sourceCrc32c = 0;

  constructor(
    private readonly tensor: ModelTensor,
    extentBytes: number,
    private readonly file: PackFile,
    private readonly context: PackingContext,
  ) {
    this.values = tensor.sizeBytes / valueBytes(tensor.dtype);
    this.split = planeSplit(tensor.dtype);
    const { rawPlanes, shardsOffsetBytes } = placeRawPlanes(this.split, this.values, extentBytes);
    this.rawChunks = rawPlanes.map(({ plane, offsetBytes, plainBytes }) => ({
      plane,
      codec: 'raw',
      offset_bytes: offsetBytes,
      stored_bytes: plainBytes,
      plain_bytes: plainBytes,
      crc32c: 0,
    }));
    this.endBytes = shardsOffsetBytes;
  }

  async write(): Promise<ManifestExpertTensor> {
    const [rows = 1, columns = 1] = this.tensor.dimensions;
    for (const range of shardRanges(rows, columns, this.context.shards)) await this.writeShard(range);
    return {
      name: this.tensor.name,
      dtype: this.tensor.dtype,
      rows,
      columns,
      split: this.split,
      source_crc32c: this.sourceCrc32c,
      chunks: [...this.shardChunks, ...this.rawChunks],
    };
  }

  private async writeShard(range: ShardRange): Promise<void> {
    const { context, tensor } = this;
    const bytesPerValue = valueBytes(tensor.dtype);
    const encoder = context.codec.startChunk();
    const chunk: ManifestChunk = {
      plane: 0,
      codec: context.codec.name,
      offset_bytes: this.endBytes,
      stored_bytes: 0,
      plain_bytes: range.values,
      crc32c: 0,
    };
    const sourceOffset = tensor.offsetBytes + range.firstValue * bytesPerValue;
    let value = range.firstValue;
    for await (const piece of context.reader.pieces(tensor.path, sourceOffset, range.values * bytesPerValue)) {
      this.sourceCrc32c = context.tools.crc32c(piece, this.sourceCrc32c);
      const planes = context.tools.splitPlanes(piece, this.split);
      for (const rawChunk of this.rawChunks) await this.writeRaw(rawChunk, value, planeOf(planes, rawChunk.plane));
      await this.append(chunk, await encoder.push(planeOf(planes, 0)));
      value += piece.length / bytesPerValue;
      context.onBytes(piece.length);
    }
    await this.append(chunk, await encoder.finish());
    this.shardChunks.push(chunk);
    this.endBytes = alignUp(chunk.offset_bytes + chunk.stored_bytes);
  }

  private async writeRaw(chunk: ManifestChunk, firstValue: number, bytes: Uint8Array): Promise<void> {
    const bytesPerValue = chunk.plain_bytes / this.values;
    await this.file.writeAt(chunk.offset_bytes + firstValue * bytesPerValue, bytes);
    chunk.crc32c = this.context.tools.crc32c(bytes, chunk.crc32c);
  }

  private async append(chunk: ManifestChunk, bytes: Uint8Array): Promise<void> {
    await this.file.writeAt(chunk.offset_bytes + chunk.stored_bytes, bytes);
    chunk.crc32c = this.context.tools.crc32c(bytes, chunk.crc32c);
    chunk.stored_bytes += bytes.length;
  }
}

function planeOf(planes: Uint8Array[], plane: number): Uint8Array {
  const bytes = planes[plane];
  if (bytes === undefined)
    throw new OdmoeError('INTERNAL', `splitting gave ${planes.length} planes, plane ${plane} is needed`);
  return bytes;
}
