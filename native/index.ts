/** All code reaches the native core through this module. Every error that it throws or rejects with is an OdmoeError. */
import type { ExpertMapsShape, LayerMaps } from '../shared/model/expert-maps.js';
import type { ChunkCodec, SlicedSplit, Split, TensorSource } from '../shared/model/tensor-source.js';
import type {
  CodecSpeed,
  CudaStatus,
  ExpertMaps,
  FormatNumbers,
  MapTraining,
  OpenHandles,
  QueuedReadRequest,
  QueuedReadSpeed,
  ReadSpeed,
  TensorRows,
} from './addon.d.ts';
import { addon } from './addon-loader.js';

export type {
  CodecSpeed,
  CudaDevice,
  CudaStatus,
  DeviceInfo,
  DeviceOptions,
  ExpertForm,
  ExpertMaps,
  ExpertOrder,
  ExpertShape,
  ExpertSlotBytes,
  ExpertSlots,
  ExpertSpeed,
  HoldOutcome,
  RecodeOutcome,
  RouterChoice,
  LoaderOptions,
  MapTraining,
  LoadOutcome,
  LoadRequest,
  Model,
  FormatNumbers,
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
export { innerHandle, wrapHandle, wrapperOf } from './wrap-handle.js';
export { FROM_STORAGE, ONE_READ_AT_A_TIME, PLAIN_LOADER } from './loader-defaults.js';
export {
  measureExperts,
  measureMachine,
  measureOperators,
  openDevice,
  type Device,
  type DeviceRequest,
} from './device.js';

/**
 * Makes maps of these weights, which are copied. They work on the processor, whatever the device of the pass.
 * @throws INTERNAL for weights that do not fit the shape or are not finite
 */
export function createExpertMaps(shape: ExpertMapsShape, weights: readonly LayerMaps[]): ExpertMaps {
  return addon().createExpertMaps(shape, weights);
}

/**
 * Trains the maps of one layer on threads of the addon (by default as many as the process may use): the same bits on every processor, with any
 * number of threads. onEpoch is called after each epoch, counted from 1, with the mean squared error of its probabilities; an error that it
 * throws ends the training, and is what the promise rejects with.
 * @throws CANCELLED soon after the signal aborts; INTERNAL for examples that do not belong together or of which none counts
 */
export async function trainExpertMaps(
  request: Omit<MapTraining, 'threads'> & { threads?: number },
  onEpoch: ((epoch: number, error: number) => void) | null = null,
  signal: AbortSignal | null = null,
): Promise<LayerMaps> {
  const failures: { thrown: unknown }[] = [];
  const tell = (epoch: number, error: number): void => {
    if (failures.length > 0) return;
    try {
      onEpoch?.(epoch, error);
    } catch (thrown) {
      failures.push({ thrown });
      training.cancel();
    }
  };
  const training = addon().trainExpertMaps({ threads: 0, ...request }, tell);
  const cancel = (): void => training.cancel();
  if (signal?.aborted === true) cancel();
  signal?.addEventListener('abort', cancel);
  const [outcome] = await Promise.allSettled([training.maps]);
  signal?.removeEventListener('abort', cancel);
  for (const { thrown } of failures) throw thrown;
  if (outcome.status === 'rejected') throw outcome.reason;
  return outcome.value;
}

/** Opens a tensor of a checkpoint or a pack, to read it from its first row to its last. @throws PACK_CORRUPT, MODEL_CORRUPT */
export function openTensor(source: TensorSource): TensorRows {
  return addon().openTensor(source);
}

/** Cuts row-major values into byte planes (docs/pack-format.md). */
export function splitPlanes(values: Uint8Array, split: Split): Uint8Array[] {
  return addon().splitPlanes(values, split);
}

/** Joins all planes of the split into row-major values again. */
export function joinPlanes(planes: Uint8Array[], split: Split): Uint8Array {
  return addon().joinPlanes(planes, split);
}

/**
 * Cuts rows of weights into slices (SliceMoE, section 4.2; native/include/odmoe/slices.h). `planes`: the rows' bytes in each plane of `split`.
 * @throws MODEL_UNSUPPORTED, naming the row, for a weight that is not finite and for a scale beyond FP16
 */
export async function sliceRows(
  planes: Uint8Array[],
  split: Split,
  rows: number,
  columns: number,
  sliced: SlicedSplit,
): Promise<[upper: Uint8Array, lower: Uint8Array]> {
  return await addon().sliceRows(planes, split, rows, columns, sliced);
}

/** CRC-32C. `seed`: the CRC of the bytes before these, 0 at the start. */
export function crc32c(bytes: Uint8Array, seed: number): number {
  return addon().crc32c(bytes, seed);
}

/** True if none of these FP32 values (little-endian, at any address) is NaN or infinite. Reads them once, on the caller's thread. */
export function allFinite(values: Uint8Array): boolean {
  return addon().allFinite(values);
}

/**
 * exp((logit - highest) / temperature) of each logit by the one arithmetic: the same bits on every processor. `highest`: the highest logit,
 * finite. With a temperature near 0 all other weights become 0. -Infinity gets the weight 0.
 */
export function tokenWeights(logits: Float32Array, highest: number, temperature: number): Float32Array {
  return addon().tokenWeights(logits, highest, temperature);
}

/** log(sum(exp(logits))) by the one arithmetic, FP32. `highest`: the highest logit, finite. */
export function logSumExp(logits: Float32Array, highest: number): number {
  return addon().logSumExp(logits, highest);
}

/**
 * Stored bytes of one chunk of a plane, cut into blocks of `blockBytes` (whole rows of the tensor). Several calls can run at a time, on
 * threads of the addon; do not change `plain` meanwhile.
 * `level`: 1 to 22 for zstd, 1 to 12 for lz4hc; the other codecs have none and take 0.
 */
export async function encodeChunk(
  codec: ChunkCodec,
  level: number,
  plain: Uint8Array,
  blockBytes: number,
): Promise<Uint8Array> {
  return await addon().encodeChunk(codec, level, plain, blockBytes);
}

/**
 * Plain bytes of one chunk. `blockBytes` matters for raw chunks only: other chunks store their block size.
 * @throws PACK_CORRUPT when the bytes cannot be a chunk of that codec and size; damage that does not break the layout gives wrong bytes, so
 * compare the checksum first
 */
export async function decodeChunk(
  codec: ChunkCodec,
  stored: Uint8Array,
  plainBytes: number,
  blockBytes: number,
): Promise<Uint8Array> {
  return await addon().decodeChunk(codec, stored, plainBytes, blockBytes);
}

/**
 * Size and speed of a codec on one core, for a tensor of BF16 values in rows of `columns`: exponents are coded, signs and mantissas stay
 * raw, and decoding produces row-major values again. Decoding and memcpy take turns for `milliseconds`.
 */
export async function measureCodec(
  codec: ChunkCodec,
  level: number,
  bf16Values: Uint8Array,
  columns: number,
  milliseconds: number,
): Promise<CodecSpeed> {
  return await addon().measureCodec(codec, level, bf16Values, columns, milliseconds);
}

/**
 * Measures for about `milliseconds` how fast a file's first `bytes` (4096 or more) are read, in order, one read after another; past the
 * page cache where the file system allows that.
 */
export async function measureReads(path: string, bytes: number, milliseconds: number): Promise<ReadSpeed> {
  return await addon().measureReads(path, bytes, milliseconds);
}

/** Measures for about `milliseconds` how fast a file's first `bytes` (4096 or more) are read repeatedly with several reads in flight. */
export async function measureQueuedReads(
  path: string,
  bytes: number,
  request: QueuedReadRequest,
  milliseconds: number,
): Promise<QueuedReadSpeed> {
  return await addon().measureQueuedReads(path, bytes, request, milliseconds);
}

/** Measures for about `milliseconds` the bytes per second that this number of threads copies together with memcpy. */
export async function measureMemoryCopy(threads: number, milliseconds: number): Promise<number> {
  return await addon().measureMemoryCopy(threads, milliseconds);
}

/** Counts the native objects of this process; tests use it to show that none is left. */
export function openHandles(): OpenHandles {
  return addon().openHandles();
}

/** Linux: the process is killed when its parent dies. Other systems: does nothing. */
export function exitWithParent(): void {
  addon().exitWithParent();
}

/**
 * Linux: the system writes no core file of this process and of those that it starts, so that no prompt gets onto the disk by a crash. Other
 * systems: does nothing.
 */
export function leaveNoCore(): void {
  addon().leaveNoCore();
}

/**
 * Locks an open file or directory, by its number, until it is closed or the process ends, however it ends. Shared locks go together with each
 * other. Never waits. False: another open of the file holds the lock. Throws STORAGE_FAILED where the file system has no locks.
 */
export function lockFile(file: number, isShared: boolean): boolean {
  return addon().lockFile(file, isShared);
}

/**
 * Sends the message to the datagram socket of a service manager ($NOTIFY_SOCKET: a path, or "@" and a name in Linux's abstract namespace). Never
 * waits. Returns what the system says where it could not be sent, else null.
 */
export function sendServiceNotice(address: string, message: string): string | null {
  return addon().sendServiceNotice(address, message);
}

/**
 * Resolves at this time of CLOCK_MONOTONIC (process.hrtime), at most about 0.1 ms later; at once for a time that has passed. Rejects with
 * QUEUE_FULL.
 */
export async function waitUntil(monotonicMs: number): Promise<void> {
  await addon().waitUntil(monotonicMs);
}

/** Instruction sets that this processor can use, widest first. */
export function instructionSets(): string[] {
  return addon().instructionSets();
}

/** The native core's table of dense roles; it equals that of shared/model/dense-roles.ts. */
export function nativeDenseRoles(): Record<string, string> {
  return addon().denseRoles();
}

/** The native core's numbers of formats, splits, codecs, parts of an expert and readings of slices; the lists of shared/model have the same order. */
export function nativeFormatNumbers(): FormatNumbers {
  return addon().formatNumbers();
}

/** Every code that an error of the native core can carry; all are in shared/base/errors/registry.ts. */
export function nativeErrorCodes(): string[] {
  return addon().errorCodes();
}

/** CUDA devices and library of this machine, determined once. */
export function cudaStatus(): CudaStatus {
  return addon().cudaStatus();
}
