import { readdir } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { HEADER_LENGTH_BYTES } from '../../packs/checkpoint/safetensors-header.js';
import { requireFreeBytes, writeFailure } from '../../shared/base/files/storage-error.js';

/** Most bytes of weights in one file, unless a single tensor is larger. */
const SHARD_LIMIT_BYTES = 2_000_000_000;

/** A tensor's entry in the header of a safetensors file. */
export interface ShardTensor {
  name: string;
  dtype: string;
  shape: readonly number[];
  sizeBytes: number;
}

/** Makes a directory for a checkpoint. @throws USAGE when it is not empty, STORAGE_FULL, STORAGE_FAILED */
export async function prepareCheckpointDirectory(directory: string, weightBytes: number): Promise<void> {
  try {
    await makeDirectories(directory);
    const [found] = await readdir(directory);
    if (found !== undefined) {
      throw new OdmoeError('USAGE', `${directory}: holds ${found} and more; choose an empty or new directory`);
    }
  } catch (thrown) {
    throw writeFailure(thrown, directory, weightBytes);
  }
  await requireFreeBytes(directory, weightBytes);
}

export interface Shard<Tensor> {
  /** The file's name. */
  name: string;
  tensors: Tensor[];
}

/** Divides the tensors, in order, into files of at most SHARD_LIMIT_BYTES; a larger tensor gets a file of its own. */
export function shardTensors<Tensor extends ShardTensor>(tensors: readonly Tensor[]): Shard<Tensor>[] {
  const shards: Tensor[][] = [];
  let shardBytes = Infinity;
  for (const tensor of tensors) {
    if (shardBytes + tensor.sizeBytes > SHARD_LIMIT_BYTES) {
      shards.push([]);
      shardBytes = 0;
    }
    shards.at(-1)?.push(tensor);
    shardBytes += tensor.sizeBytes;
  }
  return shards.map((tensors, index) => ({ name: shardName(index, shards.length), tensors }));
}

/** The text of model.safetensors.index.json; null when there is only one file. */
export function shardIndex(shards: readonly Shard<ShardTensor>[]): string | null {
  if (shards.length <= 1) return null;
  const tensors = shards.flatMap((shard) => shard.tensors);
  const weightMap = Object.fromEntries(
    shards.flatMap((shard) => shard.tensors.map((tensor) => [tensor.name, shard.name])),
  );
  const totalBytes = tensors.reduce((sum, tensor) => sum + tensor.sizeBytes, 0);
  return JSON.stringify({ metadata: { total_size: totalBytes }, weight_map: weightMap }, null, 2);
}

function shardName(index: number, count: number): string {
  if (count === 1) return 'model.safetensors';
  const number = (value: number): string => String(value).padStart(5, '0');
  return `model-${number(index + 1)}-of-${number(count)}.safetensors`;
}

/** Length and header of a file with these tensors in this order. */
export function shardHeader(tensors: readonly ShardTensor[]): Buffer {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let offset = 0;
  for (const { name, dtype, shape, sizeBytes } of tensors) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + sizeBytes] };
    offset += sizeBytes;
  }
  const json = JSON.stringify(header);
  const padded = Buffer.from(json.padEnd(Math.ceil(json.length / 8) * 8));
  const length = Buffer.alloc(HEADER_LENGTH_BYTES);
  length.writeBigUInt64LE(BigInt(padded.length));
  return Buffer.concat([length, padded]);
}
