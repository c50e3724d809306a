import { open, rename, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { shardHeader, shardIndex, shardTensors, type ShardTensor } from './safetensors-shards.js';

const PIECE_BYTES = 4 * 1024 * 1024;

export interface WriteProgress {
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
}

/** The source of a tensor's bytes. The parts are requested in order, from the first to the last. */
export interface TensorContents {
  fill(piece: Uint8Array, offsetBytes: number): void | Promise<void>;
  close?(): Promise<void>;
}

/** Writes the weights of a checkpoint part by part. A file gets its final name when it is complete. */
export class CheckpointWriter<Tensor extends ShardTensor> {
  doneBytes = 0;
  private readonly piece = Buffer.alloc(PIECE_BYTES);

  constructor(
    private readonly progress: WriteProgress,
    private readonly totalBytes: number,
    private readonly openContents: (tensor: Tensor) => TensorContents | Promise<TensorContents>,
  ) {}

  /** Returns the files' names. @throws CANCELLED, errors of the contents, and the file system's own errors */
  async writeWeights(directory: string, tensors: readonly Tensor[]): Promise<string[]> {
    const shards = shardTensors(tensors);
    for (const shard of shards) await this.writeShard(join(directory, shard.name), shard.tensors);
    const index = shardIndex(shards);
    if (index !== null) await writeFile(join(directory, 'model.safetensors.index.json'), index);
    return shards.map(({ name }) => name);
  }

  private async writeShard(path: string, tensors: readonly Tensor[]): Promise<void> {
    const partial = `${path}.partial`;
    const handle = await open(partial, 'w');
    try {
      await handle.writeFile(shardHeader(tensors));
      for (const tensor of tensors) await this.writeTensor(handle, tensor);
    } catch (thrown) {
      await rm(partial, { force: true });
      throw thrown;
    } finally {
      await handle.close();
    }
    await rename(partial, path);
  }

  private async writeTensor(output: FileHandle, tensor: Tensor): Promise<void> {
    const contents = await this.openContents(tensor);
    try {
      for (let done = 0; done < tensor.sizeBytes; done += PIECE_BYTES) {
        if (this.progress.signal?.aborted === true) {
          throw new OdmoeError('CANCELLED', 'interrupted; remove the directory and start again');
        }
        const bytes = this.piece.subarray(0, Math.min(PIECE_BYTES, tensor.sizeBytes - done));
        await contents.fill(bytes, done);
        await output.writeFile(bytes);
        this.doneBytes += bytes.length;
        this.progress.onProgress?.(this.doneBytes, this.totalBytes);
      }
    } finally {
      await contents.close?.();
    }
  }
}
