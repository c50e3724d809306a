/** The only door to the native core. Everything thrown or rejected here is an OdmoeError. */
import type { ChunkCodec, Split, TensorSource } from '../shared/model/tensor-source.js';
import type {
  CodecSpeed,
  CudaStatus,
  OpenHandles,
  QueuedReadRequest,
  QueuedReadSpeed,
  ReadSpeed,
  TensorRows,
} from './addon.d.ts';
import { awaiting, calling } from './addon-errors.js';
import { addon } from './addon-loader.js';
import {
  checkBytes,
  checkCodec,
  checkFloats,
  checkInteger,
  checkNumber,
  checkReads,
  checkSplit,
  checkTensorSource,
} from './argument-checks.js';

export type {
  CodecSpeed,
  CudaDevice,
  CudaStatus,
  DeviceInfo,
  DeviceOptions,
  ExpertOrder,
  ExpertPlace,
  ExpertShape,
  ExpertSlotBytes,
  ExpertSlots,
  ExpertSpeed,
  HoldOutcome,
  RecodeOutcome as PackOutcome,
  RouterChoice,
  LoaderOptions,
  LoadOutcome,
  LoadRequest,
  Model,
  OpenHandles,
  OperatorSpeed,
  PartPlan,
  QueuedReadRequest,
  QueuedReadSpeed,
  Pass,
  ReadSpeed,
  ResidentWeights,
  StorageReads,
  StorageWay,
  Sequence,
  TaskOrder,
  TensorRows,
  WantedStorageWay,
} from './addon.d.ts';
export { nativeStatus, requireAddon, type NativeStatus } from './addon-loader.js';
export { FROM_STORAGE, ONE_READ_AT_A_TIME, PLAIN_LOADER } from './loader-defaults.js';
export {
  measureExperts,
  measureMachine,
  measureOperators,
  openDevice,
  type Device,
  type DeviceRequest,
} from './device.js';

/** Opens a tensor of a checkpoint or a pack, to read it from its first row to its last. @throws PACK_CORRUPT, MODEL_CORRUPT */
export function openTensor(source: TensorSource): TensorRows {
  checkTensorSource(source);
  return new CheckedTensorRows(calling(() => addon().openTensor(source)));
}

class CheckedTensorRows implements TensorRows {
  constructor(private readonly handle: TensorRows) {}

  async read(rows: number): Promise<Uint8Array[]> {
    checkInteger('rows', rows, 1);
    return await awaiting(() => this.handle.read(rows));
  }

  dispose(): void {
    this.handle.dispose();
  }
}

/** Cuts row-major values into byte planes (docs/pack-format.md). */
export function splitPlanes(values: Uint8Array, split: Split): Uint8Array[] {
  checkBytes('values', values);
  checkSplit(split);
  return calling(() => addon().splitPlanes(values, split));
}

/** The row-major values again, from all planes of the split. */
export function joinPlanes(planes: Uint8Array[], split: Split): Uint8Array {
  planes.forEach((plane) => checkBytes('plane', plane));
  checkSplit(split);
  return calling(() => addon().joinPlanes(planes, split));
}

/** CRC-32C. `seed`: the CRC of the bytes before these, 0 at the start. */
export function crc32c(bytes: Uint8Array, seed: number): number {
  checkBytes('bytes', bytes);
  checkInteger('seed', seed, 0, 2 ** 32 - 1);
  return calling(() => addon().crc32c(bytes, seed));
}

/** No NaN and no infinity is among these FP32 values, little-endian and at any address: one pass over them, on the caller's thread. */
export function allFinite(values: Uint8Array): boolean {
  checkBytes('values', values);
  return calling(() => addon().allFinite(values));
}

/**
 * exp((logit - highest) / temperature) of each logit by the one arithmetic: the same bits on every processor. `highest`: the highest logit,
 * finite; a temperature near 0 leaves weight to no other. -Infinity weighs 0.
 */
export function tokenWeights(logits: Float32Array, highest: number, temperature: number): Float32Array {
  checkFloats('logits', logits);
  checkNumber('highest', highest, -Number.MAX_VALUE, Number.MAX_VALUE);
  checkNumber('temperature', temperature, 0, Number.MAX_VALUE);
  return calling(() => addon().tokenWeights(logits, highest, temperature));
}

/** log(sum(exp(logits))) by the one arithmetic, FP32. `highest`: the highest logit, finite. */
export function logSumExp(logits: Float32Array, highest: number): number {
  checkFloats('logits', logits);
  checkNumber('highest', highest, -Number.MAX_VALUE, Number.MAX_VALUE);
  return calling(() => addon().logSumExp(logits, highest));
}

/** Plain bytes of one chunk and of one block, at most (docs/pack-format.md, "Codecs"). */
const LARGEST_CHUNK_BYTES = 2 ** 31;
const LARGEST_BLOCK_BYTES = 2 ** 24;
const HIGHEST_LEVEL = 22;

/**
 * Stored bytes of one chunk of a plane, cut into blocks of `blockBytes` (whole rows of the tensor). Several calls run at a time, on
 * threads of the addon's own; `plain` is not to be changed meanwhile.
 * `level`: 1 to 22 for zstd, 1 to 12 for lz4hc; the other codecs have none and take 0.
 */
export async function encodeChunk(
  codec: ChunkCodec,
  level: number,
  plain: Uint8Array,
  blockBytes: number,
): Promise<Uint8Array> {
  checkCodec(codec);
  checkInteger('level', level, 0, HIGHEST_LEVEL);
  checkBytes('plain', plain);
  checkInteger('blockBytes', blockBytes, 1, LARGEST_BLOCK_BYTES);
  return await awaiting(() => addon().encodeChunk(codec, level, plain, blockBytes));
}

/**
 * Plain bytes of one chunk. `blockBytes` matters for raw chunks only: others know their own.
 * @throws PACK_CORRUPT when the bytes cannot be a chunk of that codec and size; damage that the layout does not show gives wrong
 * bytes, so the checksum is to be compared first
 */
export async function decodeChunk(
  codec: ChunkCodec,
  stored: Uint8Array,
  plainBytes: number,
  blockBytes: number,
): Promise<Uint8Array> {
  checkCodec(codec);
  checkBytes('stored', stored);
  checkInteger('plainBytes', plainBytes, 1, LARGEST_CHUNK_BYTES);
  checkInteger('blockBytes', blockBytes, 1, LARGEST_BLOCK_BYTES);
  return await awaiting(() => addon().decodeChunk(codec, stored, plainBytes, blockBytes));
}

/**
 * Size and speed of a codec on one core, for a tensor of BF16 values in rows of `columns`: exponents coded, signs and mantissas raw,
 * decoding ended in row-major values again. Decoding and memcpy take turns for `milliseconds`.
 */
export async function measureCodec(
  codec: ChunkCodec,
  level: number,
  bf16Values: Uint8Array,
  columns: number,
  milliseconds: number,
): Promise<CodecSpeed> {
  checkCodec(codec);
  checkInteger('level', level, 0, HIGHEST_LEVEL);
  checkBytes('bf16Values', bf16Values);
  checkInteger('columns', columns, 1, LARGEST_BLOCK_BYTES);
  checkInteger('milliseconds', milliseconds, 1);
  return await awaiting(() => addon().measureCodec(codec, level, bf16Values, columns, milliseconds));
}

/**
 * How fast a file's first `bytes` (4096 or more) are read, in order, one read after another, for about `milliseconds`; past the page cache
 * where the file system allows that.
 */
export async function measureReads(path: string, bytes: number, milliseconds: number): Promise<ReadSpeed> {
  checkInteger('bytes', bytes, 4096, Number.MAX_SAFE_INTEGER);
  checkInteger('milliseconds', milliseconds, 1);
  return await awaiting(() => addon().measureReads(path, bytes, milliseconds));
}

/** How fast a file's first `bytes` (4096 or more) are read with several reads in flight, over and over, for about `milliseconds`. */
export async function measureQueuedReads(
  path: string,
  bytes: number,
  request: QueuedReadRequest,
  milliseconds: number,
): Promise<QueuedReadSpeed> {
  checkInteger('bytes', bytes, 4096, Number.MAX_SAFE_INTEGER);
  checkInteger('milliseconds', milliseconds, 1);
  checkReads('request', request.depth, request.way);
  return await awaiting(() => addon().measureQueuedReads(path, bytes, request, milliseconds));
}

const MOST_COPYING_THREADS = 1024;

/** Bytes a second that so many threads copy together with memcpy, in about `milliseconds`. */
export async function measureMemoryCopy(threads: number, milliseconds: number): Promise<number> {
  checkInteger('threads', threads, 1, MOST_COPYING_THREADS);
  checkInteger('milliseconds', milliseconds, 1);
  return await awaiting(() => addon().measureMemoryCopy(threads, milliseconds));
}

/** What native objects there are in this process, for tests that nothing is left. */
export function openHandles(): OpenHandles {
  return calling(() => addon().openHandles());
}

/** Linux: the process is killed when its parent dies. Elsewhere nothing. */
export function exitWithParent(): void {
  calling(() => {
    addon().exitWithParent();
  });
}

/** Resolves at that time of CLOCK_MONOTONIC (process.hrtime), about 0.1 ms later at most; a time that has passed: at once. Rejects with QUEUE_FULL. */
export async function waitUntil(monotonicMs: number): Promise<void> {
  checkNumber('monotonicMs', monotonicMs, -Number.MAX_VALUE, Number.MAX_VALUE);
  await awaiting(() => addon().waitUntil(monotonicMs));
}

/** Instruction sets usable here, widest first. */
export function instructionSets(): string[] {
  return calling(() => addon().instructionSets());
}

/** The native core's table of dense roles: that of shared/model/dense-roles.ts. */
export function nativeDenseRoles(): Record<string, string> {
  return calling(() => addon().denseRoles());
}

/** Every code that an error of the native core can carry; all are in shared/base/errors/registry.ts. */
export function nativeErrorCodes(): string[] {
  return calling(() => addon().errorCodes());
}

/** What this machine has of CUDA, looked at once. */
export function cudaStatus(): CudaStatus {
  return calling(() => addon().cudaStatus());
}
