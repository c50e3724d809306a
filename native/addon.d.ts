/**
 * Every function and handle of the native addon, in the order of the C++ (native/src/binding/).
 * Only opaque handles, flat option objects, typed arrays and promises cross between JavaScript and C++. `null` means absent, never
 * `undefined`.
 * The addon checks every argument, and throws INTERNAL for a wrong one. What it throws or rejects with is an OdmoeError (makeErrorsWith).
 * Every handle's `dispose()` is idempotent; a disposed handle's methods throw INTERNAL. Promises keep their inputs alive.
 */

import type { DenseRole } from '../shared/model/dense-roles.js';
import type { ExpertMapsShape, LayerMaps } from '../shared/model/expert-maps.js';
import type { GluShape, ModelShape } from '../shared/model/model-shape.js';
import type {
  ChunkCodec,
  ExpertSource,
  SliceReading,
  SlicedSplit,
  Split,
  TensorSource,
  WeightFormat,
} from '../shared/model/tensor-source.js';
import type {
  ExpertShape,
  FlatExpertSlots,
  FlatLoaderOptions,
  FlatSlotBytes,
  QueuedReadRequest,
  QueuedReadSpeed,
} from './expert-slots.d.ts';
import type { CodecSpeed, ExpertBenchOptions, ExpertForm, ExpertSpeed, OperatorSpeed, ReadSpeed } from './speeds.d.ts';

export type * from './expert-slots.d.ts';
export type { CodecSpeed, ExpertBenchOptions, ExpertForm, ExpertSpeed, OperatorSpeed, ReadSpeed };

export interface DeviceOptions {
  backend: 'cpu' | 'cuda';
  /** For a processor: 'auto' takes the widest set that it has; ODMOE_INSTRUCTION_SET in the environment overrides this option. */
  instructionSet: 'auto' | 'avx512' | 'avx2' | 'neon' | 'scalar';
  /** Threads of a processor device; 0: as many as the process may use. */
  threads: number;
  /** 0: no limit. For a CUDA device the budget includes the memory of the driver's context. */
  budgetBytes: number;
  /** For CUDA: the number of the device, as the driver counts devices. */
  device: number;
  /** For CUDA: 'fast' may use tensor cores, whose results differ from those of the one arithmetic. */
  arithmetic: 'exact' | 'fast';
}

export interface CudaDevice {
  index: number;
  name: string;
  /** "8.6". */
  capability: string;
  memoryBytes: number;
  multiprocessors: number;
  /** The device uses the host's memory. */
  integrated: boolean;
  /** The driver can reserve addresses of this device and map memory there. */
  pagedMemory: boolean;
  usable: boolean;
  /** The reason why the device is not usable; null where it is usable. */
  reason: string | null;
}

export interface CudaStatus {
  /** The library of the CUDA backend exists. */
  built: boolean;
  /** Path of the library, or the path at which it was looked for. */
  library: string;
  /** Architectures for which the library has code: "sm_86" and, for any newer one, "compute_90". */
  architectures: string[];
  /** At least one device is usable. */
  usable: boolean;
  /** The reason why no device is usable; null where one is. */
  reason: string | null;
  /** The CUDA version that the driver knows, "12.4"; null: there is no driver. */
  driverVersion: string | null;
  runtimeVersion: string | null;
  devices: CudaDevice[];
}

export interface DeviceInfo {
  /** "cpu" or "cuda"; "emulated" for a paced device. */
  backend: string;
  /** For CUDA: the compute capability, "sm_86". */
  instructionSet: string;
  /** For CUDA: the number of multiprocessors. */
  threads: number;
  budgetBytes: number;
  /** For CUDA this includes contextBytes. */
  usedBytes: number;
  highWaterBytes: number;
  /** "NVIDIA GeForce RTX 3090"; empty for a processor. */
  name: string;
  /** Bytes that the driver takes before anything is allocated. */
  contextBytes: number;
  /** Bytes of the device that this process takes, as the driver reported within the last ten seconds; null where it reports nothing. */
  driverUsedBytes: number | null;
  /** Each expert has its own addresses, and a slot's memory is mapped there. */
  pagedExperts: boolean;
}

export interface DeviceHandle {
  info(): DeviceInfo;
  dispose(): void;
}

/** The matrices of a model on its device. */
export interface ResidentWeights {
  kinds: { format: WeightFormat; matrices: number; bytes: number }[];
  /** Matrices that were requested as fixed4, do not fit that format, and are stored in their exact format. */
  fellBack: number;
}

/** Weights on a device. Dense tensors and experts are loaded one by one; a main node loads no experts. */
export interface ModelHandle {
  /**
   * `layer` counts all layers, and is 0 for roles of the whole model. A matrix that fixed4 cannot hold is stored in its exact format.
   * Vectors are always stored as FP32. With tied embeddings lmHead need not be loaded.
   */
  loadDense(role: DenseRole, layer: number, source: TensorSource, format: WeightFormat): Promise<void>;
  /**
   * `layer` counts expert layers. `reading`: how passes read a sliced expert, both slices where it is left out; a lower slice that is not
   * read is not loaded. Rejects with INTERNAL where the format holds slices and the source has others or none, or the other way round.
   */
  loadResidentExpert(
    layer: number,
    expert: number,
    source: ExpertSource,
    format: WeightFormat,
    reading?: SliceReading,
  ): Promise<void>;
  /** The matrices that have been loaded so far; norms are not matrices. */
  residentWeights(): ResidentWeights;
  /** Creates an empty KV cache. Memory is taken from the device in blocks of 256 positions as positions are used. */
  createSequence(): Sequence;
  /** Device memory that all sequences of this model hold. Memory that several sequences share counts once. */
  readonly sequenceBytes: number;
  /**
   * Scratch for passes of up to maxRows rows. `allScores` (left out: false): routers also answer the logits and scores of all experts; attend
   * then rejects with MODEL_UNSUPPORTED where a sparsemixer chooses.
   */
  createPass(maxRows: number, allScores?: boolean): Pass;
  dispose(): void;
}

export interface Model extends ModelHandle {
  readonly shape: ModelShape;
}

export interface Sequence {
  /**
   * The cache rows of some positions in a layer (counted among all layers): rows x cacheRowFloats FP32, little-endian. Attention: keys of
   * all heads, then values, then the key of a block indexer; latent attention: [latent | rotated key | key of an indexer, and its gates
   * where it chooses pools, whose key then stands in the place of the key of its last position]; attention to pools: [rotated
   * key | values | gates | values and gates of an indexer], an entry in the place of the own values of its pool's last position; recurrences: the input of the
   * convolution, and for a delta net also b and a of every value head (or, where each channel has a decay, b and the factors of the state), for a state space
   * the step of every head. Positions must have been written, and not lie before oldestPosition where the layer is recurrent.
   */
  readRows(layer: number, position: number, rows: number): Uint8Array;
  /**
   * Overwrites rows (alignment); positions at most one past the highest written, and not before oldestPosition where the layer is
   * recurrent: its state is computed again from there. This and truncate throw INTERNAL while a call of a pass that works on the sequence
   * has not settled; reading does not.
   */
  writeRows(layer: number, position: number, rows: number, values: Uint8Array): void;
  /**
   * truncate() can shorten the sequence to this length, to any greater length, or to 0. It is 0 for a model without recurrent layers.
   * Otherwise the last pass can be undone, and 32 positions before it, counted from the furthest position at which a pass began.
   */
  readonly oldestPosition: number;
  /** Forgets positions >= length; their memory stays with the sequence. */
  truncate(length: number): void;
  /**
   * A new, independent sequence that begins with this one's first `length` positions. It takes no memory at first: both sequences share
   * memory until one of them writes there; that one then takes a copy. Throws INTERNAL where this sequence cannot be truncated to `length`,
   * where it is shorter, and while a call of a pass that works on it has not settled. If a pass is between two calls, its next call throws
   * INTERNAL; so fork between passes.
   */
  fork(length: number): Sequence;
  /** Additional memory that a pass would take to write positions [position, end): new blocks, and copies of shared blocks. */
  bytesToWrite(position: number, end: number): number;
  readonly length: number;
  dispose(): void;
}

/** Examples for the maps of one layer, and how to train. */
export interface MapTraining {
  hiddenSize: number;
  experts: number;
  expertsPerToken: number;
  units: number;
  /** tokens x hiddenSize, as Pass.residual gives them before the layer's attend; not to be changed until the training has ended. */
  states: Float32Array;
  /**
   * For each distance of the layer tokens x expertsPerToken experts, copied. -1: unknown; the token then does not count for that distance.
   * Tokens with NaN or infinity in their state do not count at all.
   */
  choices: readonly Int32Array[];
  epochs: number;
  /** 0 to 2^53 - 1. */
  seed: number;
  /** 0: as many as the process may use. */
  threads: number;
}

/** Maps on the processor, whatever the device of the pass. The same bits on every processor. */
export interface ExpertMaps {
  /**
   * Probabilities, 0 to 1, of every expert of layers `layer` + distance: rows x the layer's distances x experts. `layer` counts expert
   * layers. states: rows x hiddenSize, as Pass.residual gives them before the layer's attend. A row with NaN or infinity gets zeros. Runs on a
   * thread of the addon.
   */
  predict(layer: number, states: Float32Array, rows: number): Promise<Float32Array>;
  /** The same on the calling thread. */
  predictHere(layer: number, states: Float32Array, rows: number): Float32Array;
  dispose(): void;
}

export interface RouterChoice {
  /** rows x expertsPerToken, by rank. */
  experts: Int32Array;
  weights: Float32Array;
  /**
   * rows x experts, where the pass answers all scores. `logits`: with the router's bias, without the bias of its choice. `scores`: after
   * softmax or sigmoid, before normalization and scale, so what weights are made from.
   */
  logits?: Float32Array;
  scores?: Float32Array;
}

/**
 * One forward pass of a few rows (tokens), possibly of several sequences. Layer by layer for main:
 * begin, then for each layer attend -> (experts elsewhere) -> combine, then logits; or all in one for a model with resident experts:
 * begin, forward, logits. One call at a time per pass.
 */
export interface Pass {
  /**
   * Embeds the tokens. Row i belongs to sequences[rowSequence[i]] at positions[i]; a sequence's rows come in rising position. `states`: rows x
   * hiddenSize, for a draft head (ModelShape.draftHead); left out for any other model.
   */
  begin(
    sequences: Sequence[],
    rowSequence: Int32Array,
    positions: Int32Array,
    tokenIds: Int32Array,
    states?: Float32Array,
  ): Promise<void>;
  /**
   * Runs up to expert layer `layer`: all layers without experts before it, then its own mixer, `always` part and router.
   * `hidden` receives the input of the experts: rows x expertRowSize FP32 little-endian.
   */
  attend(layer: number, hidden: Uint8Array): Promise<RouterChoice>;
  /**
   * Does the same on the calling thread, which is blocked meanwhile. Null: nothing was done, because the device is not a processor or runs
   * something else at present. The method is absent where the implementation cannot do this.
   */
  attendHere?: ((layer: number, hidden: Uint8Array) => RouterChoice | null) | undefined;
  /**
   * Weighted sum of the experts' outputs in rank order, then the layer's `always` part. outputs: rows x k x expertRowSize FP32. After the last
   * expert layer this also runs the layers behind it.
   */
  combine(layer: number, outputs: Uint8Array, weights: Float32Array): Promise<void>;
  /** Like attendHere. False: nothing was done. */
  combineHere?: ((layer: number, outputs: Uint8Array, weights: Float32Array) => boolean) | undefined;
  /**
   * Copies the residual stream of all rows to `states`, rows x hiddenSize: after begin or a combine, as the next attend meets it (before the
   * layers without experts that it runs first), and after the last combine. Of residual streams it is the sum of them that the next mixer takes,
   * or the final norm. The pass itself does not change.
   */
  residual(states: Float32Array): Promise<void>;
  /** Like attendHere. False: nothing was done. */
  residualHere?: ((states: Float32Array) => boolean) | undefined;
  /**
   * To be called between attend and combine: returns the experts that the router of a later expert layer would choose now. It reads the
   * residual stream as it is, without the experts of the layers before that layer; of residual streams the sum of them that the later layer's
   * experts would take now. The pass itself does not change.
   */
  chooseAhead(layer: number): Promise<RouterChoice>;
  /** Runs all layers with resident experts. onRouter is called for each expert layer, in order, once its router has chosen. */
  forward(onRouter: ((layer: number, choice: RouterChoice) => void) | null): Promise<void>;
  /** Runs the final norm and LM head for the given rows: rows.length x vocabSize. */
  logits(rows: Int32Array): Promise<Float32Array>;
  /** The last hidden states of the given rows, before or (`normed`) behind the final norm: rows.length x hiddenSize. To be called as logits. */
  states(rows: Int32Array, normed: boolean): Promise<Float32Array>;
  /**
   * Ends a running forward before its next layer: forward rejects with CANCELLED, and the pass must begin again. Does nothing where no
   * forward runs. Finished layers keep the cache rows of the pass until the sequence is truncated; its length does not count them.
   */
  cancel(): void;
  dispose(): void;
}

/** A tensor that is read from its first row to its last, in the order that its view defines. */
export interface TensorRows {
  /**
   * The bytes of the next rows in each plane. Runs on threads of the addon; one call at a time, and no call after one has rejected. Rejects
   * with PACK_CORRUPT, MODEL_CORRUPT or STORAGE_FAILED.
   */
  read(rows: number): Promise<Uint8Array[]>;
  dispose(): void;
}

/** Counts of the native objects that are open in this process; all are 0 once everything was disposed of and every call has settled. */
export interface OpenHandles {
  devices: number;
  models: number;
  sequences: number;
  passes: number;
  expertSlots: number;
  /** Their weights are no device memory and do not count as memoryBytes. */
  expertMaps: number;
  /** Calls that have not settled. */
  calls: number;
  /** Device and staging memory that all of these objects hold; experts in slots count only as part of their slots. */
  memoryBytes: number;
}

export type FormatNumbers = Record<'formats' | 'splits' | 'codecs' | 'parts' | 'readings', Record<string, number>>;

export interface Addon {
  readonly version: string;
  /** Sets the function that makes an OdmoeError of each error of the addon. */
  makeErrorsWith(toOdmoeError: (thrown: unknown) => Error): void;
  /** Instruction sets that this processor can use, widest first. */
  instructionSets(): string[];
  /** The C++ table of dense roles; it equals the one of shared/model/dense-roles.ts, in the same order. */
  denseRoles(): Record<string, string>;
  /** C++'s number of each format, split and codec; it is the name's place in the lists of shared/model/tensor-source.ts. */
  formatNumbers(): FormatNumbers;
  /** Every code that an error of the addon can carry. */
  errorCodes(): string[];
  /** CUDA devices and library of this machine. A machine without a GPU is no error: the reason says what is missing. */
  cudaStatus(): CudaStatus;
  openDevice(options: DeviceOptions): DeviceHandle;
  createModel(device: DeviceHandle, shape: ModelShape): ModelHandle;
  /** maxRows: most rows of one execute. Rejects with DEVICE_OUT_OF_MEMORY when the budget does not hold the slots. */
  createExpertSlots(
    device: DeviceHandle,
    shape: ExpertShape,
    count: number,
    maxRows: number,
    loader: FlatLoaderOptions,
  ): FlatExpertSlots;
  /** Bytes of the device that slots take with this maxRows and loader. */
  expertSlotBytes(device: DeviceHandle, shape: ExpertShape, maxRows: number, loader: FlatLoaderOptions): FlatSlotBytes;
  /** weights: of every layer, copied. Throws INTERNAL for weights that do not fit the shape or are not finite. */
  createExpertMaps(shape: ExpertMapsShape, weights: readonly LayerMaps[]): ExpertMaps;
  /**
   * Trains the maps of one layer on threads of the addon: the same bits on every processor, with any number of threads. onEpoch, which must not
   * throw, is called after each epoch, counted from 1, with the mean squared error of its probabilities. `maps` rejects with CANCELLED soon
   * after cancel(), and with INTERNAL for examples that do not belong together or of which none counts.
   */
  trainExpertMaps(
    request: MapTraining,
    onEpoch: ((epoch: number, error: number) => void) | null,
  ): { maps: Promise<LayerMaps>; cancel(this: void): void };
  /** Throws PACK_CORRUPT or MODEL_CORRUPT unless the chunks' declared sizes make up the tensor, and the view lies within the stored matrix. */
  openTensor(source: TensorSource): TensorRows;
  /** Cuts row-major values into planes (packing). */
  splitPlanes(values: Uint8Array, split: Split): Uint8Array[];
  /** Joins all planes of the split into row-major values again (verifying). */
  joinPlanes(planes: Uint8Array[], split: Split): Uint8Array;
  /**
   * Cuts rows of weights, as TensorRows.read gives them, into slices: the rows' bytes in the upper and in the lower slice. Runs on threads of the
   * addon. Rejects with MODEL_UNSUPPORTED, naming the row, for a weight that is not finite and for a scale beyond FP16.
   */
  sliceRows(
    planes: Uint8Array[],
    split: Split,
    rows: number,
    columns: number,
    sliced: SlicedSplit,
  ): Promise<[upper: Uint8Array, lower: Uint8Array]>;
  crc32c(bytes: Uint8Array, seed: number): number;
  /** True if none of these little-endian FP32 values is NaN or infinite. Runs on the caller's thread. Throws INTERNAL for a part of a value. */
  allFinite(values: Uint8Array): boolean;
  /** exp((logit - highest) / temperature) of each logit. Runs on the caller's thread, as does the next function. */
  tokenWeights(logits: Float32Array, highest: number, temperature: number): Float32Array;
  /** log(sum(exp(logits))); `highest` is the highest logit. */
  logSumExp(logits: Float32Array, highest: number): number;
  /** Stored bytes of a chunk, in blocks of blockBytes. This function and the next two run on threads of the addon, as many as there are cores. */
  encodeChunk(codec: ChunkCodec, level: number, plain: Uint8Array, blockBytes: number): Promise<Uint8Array>;
  /** Rejects with PACK_CORRUPT. blockBytes matters for raw chunks only. */
  decodeChunk(codec: ChunkCodec, stored: Uint8Array, plainBytes: number, blockBytes: number): Promise<Uint8Array>;
  /** Measures a codec on row-major BF16 values, on one thread; decoding and memcpy take turns for `milliseconds`. */
  measureCodec(
    codec: ChunkCodec,
    level: number,
    bf16Values: Uint8Array,
    columns: number,
    milliseconds: number,
  ): Promise<CodecSpeed>;
  /** Measures for about `milliseconds` how fast the first `bytes` of a file are read, one read after another. */
  measureReads(path: string, bytes: number, milliseconds: number): Promise<ReadSpeed>;
  /** Measures the same with several reads in flight, as the expert loader reads, repeatedly. */
  measureQueuedReads(
    path: string,
    bytes: number,
    request: QueuedReadRequest,
    milliseconds: number,
  ): Promise<QueuedReadSpeed>;
  /** Measures the bytes per second that this number of threads copies together with memcpy. */
  measureMemoryCopy(threads: number, milliseconds: number): Promise<number>;
  /**
   * Resolves when CLOCK_MONOTONIC (process.hrtime) has reached this time, at most about 0.1 ms later; it does not keep a core busy. For a
   * time that has passed it resolves at once. Rejects with QUEUE_FULL when 65,536 waits are pending.
   */
  waitUntil(monotonicMs: number): Promise<void>;
  /** Objects that a running call still holds also count. */
  openHandles(): OpenHandles;
  /** Linux: the process gets SIGKILL when its parent dies, so that a demo leaves no process running. Other systems: does nothing. */
  exitWithParent(): void;
  /** Linux: no core file of this process has its memory. Other systems: does nothing. */
  leaveNoCore(): void;
  /**
   * Locks an open file or directory, by its number, until it is closed or the process ends; shared locks go together. Never waits. False: another
   * open of it holds the lock.
   */
  lockFile(file: number, isShared: boolean): boolean;
  /**
   * Sends the message to the datagram socket of a service manager: a path, or "@" and a name in Linux's abstract namespace. Never waits. Returns
   * what the system says where it could not be sent, else null.
   */
  sendServiceNotice(address: string, message: string): string | null;
  /**
   * Measures the memory read bandwidth and the FP32 FMA peak of this machine with the device's number of threads, measured for
   * `milliseconds` each.
   */
  measureMachine(device: DeviceHandle, milliseconds: number): Promise<{ readBytesPerS: number; fmaFlopPerS: number }>;
  /** Measures how fast random experts execute from weights of each form, one figure for each number of tokens. */
  measureExperts(device: DeviceHandle, options: ExpertBenchOptions): Promise<ExpertSpeed[]>;
  /** Measures each operator of a CPU device against the best speeds of the machine, for `milliseconds` each. */
  measureOperators(device: DeviceHandle, milliseconds: number): Promise<OperatorSpeed[]>;
}
