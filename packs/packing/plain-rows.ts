import type { FileHandle } from 'node:fs/promises';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { openFile, readFailure } from '../../shared/model/read-file.js';
import { CHECKPOINT_FILE_ERRORS, readExactly } from '../../shared/model/safetensors-file.js';
import type { ChunkLocation, TensorSource } from '../../shared/model/tensor-source.js';
import { planeRowBytes } from '../../shared/model/weight-dtype.js';
import type { TensorRows } from './source-reader.js';

/** Reads a tensor that stands in its file as it is. */
export class PlainRows implements TensorRows {
  private readonly rowBytes: readonly number[];
  private readonly handles = new Map<string, FileHandle>();
  private row = 0;

  constructor(private readonly source: TensorSource) {
    this.rowBytes = planeRowBytes(source.split, source.columns);
    if (source.view !== null || source.chunks.length !== this.rowBytes.length) {
      throw new OdmoeError('INTERNAL', 'a tensor that is to be read as it stands has a view');
    }
  }

  async read(rows: number): Promise<Uint8Array[]> {
    const planes = await Promise.all(
      this.source.chunks.map(async (chunk, plane) => {
        const rowBytes = this.rowBytes[plane] ?? 0;
        try {
          const offsetBytes = chunk.offsetBytes + this.row * rowBytes;
          return await readExactly(await this.handleOf(chunk), chunk.path, offsetBytes, rows * rowBytes);
        } catch (thrown) {
          throw readFailure(thrown, chunk.path, CHECKPOINT_FILE_ERRORS);
        }
      }),
    );
    this.row += rows;
    return planes;
  }

  dispose(): void {
    for (const handle of this.handles.values()) void handle.close();
    this.handles.clear();
  }

  private async handleOf({ path }: ChunkLocation): Promise<FileHandle> {
    const handle = this.handles.get(path) ?? (await openFile(path));
    this.handles.set(path, handle);
    return handle;
  }
}
