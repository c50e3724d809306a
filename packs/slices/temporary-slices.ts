import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openTensor } from '../../native/index.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import type {
  ExpertMatrix,
  ChunkLocation,
  ModelSource,
  ExpertSource,
  SlicedSplit,
  TensorSource,
} from '../../shared/model/tensor-source.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';
import { tensorName } from '../format/manifest.js';
import type { WritableFile } from '../packing/pack-file.js';
import { SourceReader } from '../packing/source-reader.js';
import { NATIVE_SLICING_TOOLS } from './native-slicing-tools.js';
import { sliceMatrix } from './slice-matrix.js';

/** Slices of a model that has none: they are made of its lossless experts, one expert at a time, in a temporary file. */
export class TemporarySlices {
  private readonly reader = new SourceReader(openTensor, null);

  private constructor(
    private readonly source: ModelSource,
    readonly split: SlicedSplit,
    private readonly directory: string,
    private readonly path: string,
    private readonly file: WritableFile,
  ) {}

  /** @throws STORAGE_FULL, STORAGE_FAILED */
  static async create(source: ModelSource, split: SlicedSplit): Promise<TemporarySlices> {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-slices-')).catch((thrown: unknown) => {
      throw writeFailure(thrown, tmpdir(), null);
    });
    const path = join(directory, 'expert');
    try {
      return new TemporarySlices(source, split, directory, path, await openCounted(path, 'w+'));
    } catch (thrown) {
      await rm(directory, { recursive: true, force: true });
      throw writeFailure(thrown, path, null);
    }
  }

  /** Slices an expert; its bytes are there until the next call. @throws MODEL_UNSUPPORTED if it cannot be sliced, MODEL_CORRUPT, PACK_CORRUPT, STORAGE_FULL, STORAGE_FAILED */
  async expert(layer: number, expert: number): Promise<ExpertSource> {
    const lossless = this.source.expert(layer, expert);
    let offsetBytes = 0;
    const sliced = async (part: ExpertMatrix): Promise<TensorSource> => {
      const label = tensorName({ layer, expert, part });
      const matrix = await this.write(lossless[part], offsetBytes, label);
      offsetBytes += matrix.chunks.reduce((sum, { storedBytes }) => sum + storedBytes, 0);
      return matrix;
    };
    const [gate, up, down] = [await sliced('gate'), await sliced('up'), await sliced('down')];
    return { ...lossless, gate, up, down };
  }

  async close(): Promise<void> {
    await this.file.close();
    await rm(this.directory, { recursive: true, force: true });
  }

  /** Writes both slices of a matrix, one behind the other. */
  private async write(source: TensorSource, offsetBytes: number, label: string): Promise<TensorSource> {
    const { rows, columns } = source;
    const rowBytes = planeRowBytes(this.split, columns);
    let end = offsetBytes;
    const chunks = rowBytes.map((bytes, plane): ChunkLocation => {
      const place = { plane, path: this.path, offsetBytes: end, storedBytes: rows * bytes, plainBytes: rows * bytes };
      end += place.storedBytes;
      return { ...place, codec: 'raw', crc32c: null };
    });
    const context = { tools: NATIVE_SLICING_TOOLS, reader: this.reader };
    await sliceMatrix(source, this.split, label, context, async (firstRow, slices) => {
      for (const [plane, bytes] of slices.entries()) {
        await this.writeAt((chunks[plane]?.offsetBytes ?? 0) + firstRow * (rowBytes[plane] ?? 0), bytes);
      }
    });
    return { rows, columns, split: this.split, chunks, view: null };
  }

  private async writeAt(offsetBytes: number, bytes: Uint8Array): Promise<void> {
    try {
      for (let done = 0; done < bytes.length;) {
        const { bytesWritten } = await this.file.write(bytes, done, bytes.length - done, offsetBytes + done);
        done += bytesWritten;
      }
    } catch (thrown) {
      throw writeFailure(thrown, this.path, null);
    }
  }
}
