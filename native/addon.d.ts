/**
 * Every function and handle of the native addon, in the order of the C++ (native/src/binding/).
 * Only opaque handles, flat option objects, typed arrays and promises cross. `null` means absent, never `undefined`.
 * Thrown errors and rejections carry `code`, one of shared/base/errors; native/index.ts turns them into OdmoeError.
 * Every handle's `dispose()` is idempotent; a disposed handle's methods throw INTERNAL. Promises keep their inputs alive.
 */

import type { DenseRole } from '../shared/model/dense-roles.js';
import type { GluShape, ModelShape } from '../shared/model/model-shape.js';
import type { ChunkCodec, ExpertSource, Split, TensorSource, WeightFormat } from '../shared/model/tensor-source.js';
import type {
  ExpertShape,
  ExpertSlotBytes,
  QueuedReadRequest,
  QueuedReadSpeed,
  LoaderOptions,
  ExpertSlots,
} from './expert-slots.d.ts';
import type { CodecSpeed, ExpertBenchOptions, ExpertSpeed, OperatorSpeed, ReadSpeed } from './speeds.d.ts';

export type * from './expert-slots.d.ts';
export type { CodecSpeed, ExpertBenchOptions, ExpertSpeed, OperatorSpeed, ReadSpeed };

export interface DeviceOptions {
  backend: 'cpu' | 'cuda';
  /** Of the processor: 'auto' takes the widest that it has; ODMOE_INSTRUCTION_SET in the environment overrides it. */
  instructionSet: 'auto' | 'avx512' | 'avx2' | 'neon' | 'scalar';
  /** Of the processor; 0: as many as the process may use. */
  threads: number;
  /** 0: no limit. Of a CUDA device with what the driver's context takes. */
  budgetBytes: number;
  /** Of CUDA: which device, as the driver counts them. */
  device: number;
  /** Of CUDA: 'fast' may use tensor cores, whose results are not those of the one arithmetic. */
  arithmetic: 'exact' | 'fast';
}

export interface CudaDevice {
  index: number;
  name: string;
  /** "8.6". */
  capability: string;
  memoryBytes: number;
  multiprocessors: number;
  /** Its memory is the host's. */
  integrated: boolean;
  /** Addresses can be reserved there, and memory be mapped under them. */
  pagedMemory: boolean;
  usable: boolean;
  /** Why not; null where it is. */
  reason: string | null;
}

export interface CudaStatus {
  /** The library of the CUDA backend is there. */
  built: boolean;
  /** Its path, or where it was looked for. */
  library: string;
  /** That it has code for: "sm_86" and, for any newer one, "compute_90". */
  architectures: string[];
  /** Some device is. */
  usable: boolean;
  /** Why none is; null where one is. */
  reason: string | null;
  /** The CUDA version that the driver knows, "12.4"; null: there is no driver. */
  driverVersion: string | null;
  runtimeVersion: string | null;
  devices: CudaDevice[];
}

export interface DeviceInfo {
  /** "cpu" or "cuda"; of a paced device "emulated". */
  backend: string;
  /** Of CUDA the compute capability, "sm_86". */
  instructionSet: string;
  /** Of CUDA its multiprocessors. */
  threads: number;
  budgetBytes: number;
  /** Of CUDA with contextBytes. */
  usedBytes: number;
  highWaterBytes: number;
  /** "NVIDIA GeForce RTX 3090"; of a processor empty. */
  name: string;
  /** Taken by the driver before anything is allocated. */
  contextBytes: number;
  /** What the driver said within the last ten seconds that this process takes of the device; null where it does not tell. */
  driverUsedBytes: number | null;
  /** Experts have addresses of their own, under which a slot's memory is mapped. */
  pagedExperts: boolean;
}

export interface DeviceHandle {
  info(): DeviceInfo;
  dispose(): void;
}

/** The matrices of a model on its device. */
export interface ResidentWeights {
  kinds: { format: WeightFormat; matrices: number; bytes: number }[];
  /** Matrices that were to be fixed4, cannot be held so, and are kept in their exact format. */
  fellBack: number;
}

/** Weights on a device. Dense tensors and experts are loaded one by one; a main node loads no experts. */
export interface ModelHandle {
  /**
   * `layer` counts all layers, and is 0 for roles of the whole model. A matrix that fixed4 cannot hold is kept in its exact format.
   * Vectors are always kept as FP32. With tied embeddings lmHead need not be loaded.
   */
  loadDense(role: DenseRole, layer: number, source: TensorSource, format: WeightFormat): Promise<void>;
  /** `layer` counts expert layers. */
  loadResidentExpert(layer: number, expert: number, source: ExpertSource, format: WeightFormat): Promise<void>;
  /** What has been loaded so far; norms are not matrices. */
  residentWeights(): ResidentWeights;
  /** Creates an empty KV cache. Memory is taken from the device in blocks of 256 positions as positions are used. */
  createSequence(): Sequence;
  /** Memory of the device that all its sequences hold. What several share counts once. */
  readonly sequenceBytes: number;
  /** Scratch for passes of up to maxRows rows. */
  createPass(maxRows: number): Pass;
  dispose(): void;
}

export interface Model extends ModelHandle {
  readonly shape: ModelShape;
}

export interface Sequence {
  /**
   * What a layer (of all layers) keeps of positions: rows x cacheRowFloats FP32, little-endian. Attention: keys of all heads, then values;
   * latent attention: [latent | rotated key]; recurrences: what enters the convolution, and for a delta net b and a of every value head.
   * Positions must have been written, and not lie before oldestPosition where the layer is recurrent.
   */
  readRows(layer: number, position: number, rows: number): Uint8Array;
  /**
   * Overwrites rows (alignment); positions at most one past the highest written, and not before oldestPosition where the layer is
   * recurrent: its state is computed again from there. This and truncate throw INTERNAL while a call of a pass that works on the sequence
   * has not settled; reading does not.
   */
  writeRows(layer: number, position: number, rows: number, values: Uint8Array): void;
  /**
   * The sequence can be cut back to this length, or any above it, or to 0. 0 for a model without recurrent layers; else the last pass
   * can be taken back, and 32 positions before it, counted from the furthest position at which one began.
   */
  readonly oldestPosition: number;
  /** Forgets positions >= length; their memory stays with the sequence. */
  truncate(length: number): void;
  /**
   * A sequence of its own that begins as this one's first `length` positions. It takes no memory: both share what they have until one of
   * them writes there, which then takes a copy. INTERNAL where this one could not be cut back to `length`, where it is shorter, and while
   * a call of a pass that works on it has not settled. A pass that is between two calls ends with INTERNAL; fork between passes.
   */
  fork(length: number): Sequence;
  /** Memory that a pass would newly take to write positions [position, end): new blocks, and copies of shared ones. */
  bytesToWrite(position: number, end: number): number;
  readonly length: number;
  dispose(): void;
}

export interface RouterChoice {
  /** rows x expertsPerToken, by rank. */
  experts: Int32Array;
  weights: Float32Array;
}

/**
 * One forward pass of a few rows (tokens), possibly of several sequences. Layer by layer for main:
 * begin, then for each layer attend -> (experts elsewhere) -> combine, then logits; or all in one for a model with resident experts:
 * begin, forward, logits. One call at a time per pass.
 */
export interface Pass {
  /** Embeds the tokens. Row i belongs to sequences[rowSequence[i]] at positions[i]; a sequence's rows come in rising position. */
  begin(sequences: Sequence[], rowSequence: Int32Array, positions: Int32Array, tokenIds: Int32Array): Promise<void>;
  /**
   * To expert layer `layer`: all layers without experts that come before it, then its mixer, `always` part and router.
   * `hidden` receives what the experts take: rows x hiddenSize FP32 little-endian.
   */
  attend(layer: number, hidden: Uint8Array): Promise<RouterChoice>;
  /**
   * The same on the calling thread, which does nothing else meanwhile. Null: the device is none of the processor's, or runs something else at
   * present, and nothing was done. Left out: it cannot.
   */
  attendHere?: ((layer: number, hidden: Uint8Array) => RouterChoice | null) | undefined;
  /**
   * Weighted sum of the experts' outputs in rank order, then the layer's `always`. outputs: rows x k x hiddenSize FP32. After the last
   * expert layer the layers behind it run, too.
   */
  combine(layer: number, outputs: Uint8Array, weights: Float32Array): Promise<void>;
  /** As attendHere. False: nothing was done. */
  combineHere?: ((layer: number, outputs: Uint8Array, weights: Float32Array) => boolean) | undefined;
  /**
   * Between attend and combine: what the router of a later expert layer would choose now, from the residual stream as it is, without the
   * experts of the layers before it. The pass goes on as if it had not been asked.
   */
  chooseAhead(layer: number): Promise<RouterChoice>;
  /** All layers with resident experts. onRouter is called for each expert layer as its router has decided, in order. */
  forward(onRouter: ((layer: number, choice: RouterChoice) => void) | null): Promise<void>;
  /** Final norm and LM head for the rows named: rows.length x vocabSize. */
  logits(rows: Int32Array): Promise<Float32Array>;
  /**
   * Ends a forward that is under way before its next layer: it rejects with CANCELLED, and the pass begins anew. Nothing where none is.
   * Layers that were done keep the pass's rows until the sequence is truncated; its length does not count them.
   */
  cancel(): void;
  dispose(): void;
}

/** A tensor that is read from its first row to its last, as its view says. */
export interface TensorRows {
  /**
   * The bytes of the next rows in each plane. On threads of the addon's own; one call at a time, and none after one has rejected.
   * Rejects with PACK_CORRUPT, MODEL_CORRUPT or STORAGE_FAILED.
   */
  read(rows: number): Promise<Uint8Array[]>;
  dispose(): void;
}

/** What is open in this process; all 0 when everything was disposed of and every call has settled. */
export interface OpenHandles {
  devices: number;
  models: number;
  sequences: number;
  passes: number;
  expertSlots: number;
  /** Calls that have not settled. */
  calls: number;
  /** Device and staging memory that all of these hold; a model's experts in slots are not counted apart from their slots. */
  memoryBytes: number;
}

export interface Addon {
  readonly version: string;
  /** Instruction sets usable here, widest first. */
  instructionSets(): string[];
  /** The C++'s table of dense roles, as shared/model/dense-roles.ts has it and in the same order. */
  denseRoles(): Record<string, string>;
  /** Every code that an error of the addon can carry. */
  errorCodes(): string[];
  /** What this machine has of CUDA. A machine without a GPU is no error: the reason says what is missing. */
  cudaStatus(): CudaStatus;
  openDevice(options: DeviceOptions): DeviceHandle;
  createModel(device: DeviceHandle, shape: ModelShape): ModelHandle;
  /** maxRows: rows of the largest execute. Rejects with DEVICE_OUT_OF_MEMORY when the budget does not hold the slots. */
  createExpertSlots(
    device: DeviceHandle,
    shape: ExpertShape,
    count: number,
    maxRows: number,
    loader: LoaderOptions,
  ): ExpertSlots;
  /** Bytes that slots for a given maxRows and loader take of the device. */
  expertSlotBytes(device: DeviceHandle, shape: ExpertShape, maxRows: number, loader: LoaderOptions): ExpertSlotBytes;
  /** Throws PACK_CORRUPT or MODEL_CORRUPT unless the chunks make up the tensor, by what is said of their sizes, and the view lies within. */
  openTensor(source: TensorSource): TensorRows;
  /** Cuts row-major values into planes (packing). */
  splitPlanes(values: Uint8Array, split: Split): Uint8Array[];
  /** The values again, from all planes of the split (verifying). */
  joinPlanes(planes: Uint8Array[], split: Split): Uint8Array;
  crc32c(bytes: Uint8Array, seed: number): number;
  /** No NaN and no infinity is among these FP32 values, little-endian. On the caller's thread. Throws INTERNAL for a part of a value. */
  allFinite(values: Uint8Array): boolean;
  /** exp((logit - highest) / temperature) of each logit. On the caller's thread, as the next one. */
  tokenWeights(logits: Float32Array, highest: number, temperature: number): Float32Array;
  /** log(sum(exp(logits))); `highest` is the highest of them. */
  logSumExp(logits: Float32Array, highest: number): number;
  /** Stored bytes of a chunk, in blocks of blockBytes. These three run on threads of the addon's own, as many as there are cores. */
  encodeChunk(codec: ChunkCodec, level: number, plain: Uint8Array, blockBytes: number): Promise<Uint8Array>;
  /** Rejects with PACK_CORRUPT. blockBytes matters for raw chunks only. */
  decodeChunk(codec: ChunkCodec, stored: Uint8Array, plainBytes: number, blockBytes: number): Promise<Uint8Array>;
  /** Of row-major BF16 values, on one thread; decoding and memcpy take turns for `milliseconds`. */
  measureCodec(
    codec: ChunkCodec,
    level: number,
    bf16Values: Uint8Array,
    columns: number,
    milliseconds: number,
  ): Promise<CodecSpeed>;
  /** How fast the first `bytes` of a file are read, one read after another, for about so long. */
  measureReads(path: string, bytes: number, milliseconds: number): Promise<ReadSpeed>;
  /** The same with several reads in flight, as the expert loader reads, over and over. */
  measureQueuedReads(
    path: string,
    bytes: number,
    request: QueuedReadRequest,
    milliseconds: number,
  ): Promise<QueuedReadSpeed>;
  /** Bytes a second that so many threads copy together with memcpy. */
  measureMemoryCopy(threads: number, milliseconds: number): Promise<number>;
  /**
   * Resolves when CLOCK_MONOTONIC (process.hrtime) has come to that time, at most about 0.1 ms later; without burning a core. Times
   * that have passed resolve at once. Rejects with QUEUE_FULL when 65,536 are under way.
   */
  waitUntil(monotonicMs: number): Promise<void>;
  /** Objects that calls still hold count too. */
  openHandles(): OpenHandles;
  /** Linux: the process gets SIGKILL when its parent dies, so that a demo leaves nothing behind; elsewhere nothing. */
  exitWithParent(): void;
  /** Memory read bandwidth and FP32 FMA peak of this machine with the device's number of threads, measured for `milliseconds` each. */
  measureMachine(device: DeviceHandle, milliseconds: number): Promise<{ readBytesPerS: number; fmaFlopPerS: number }>;
  /** How fast random experts execute from BF16 and from fixed4 weights, one figure for each number of tokens. */
  measureExperts(device: DeviceHandle, options: ExpertBenchOptions): Promise<ExpertSpeed[]>;
  /** How near each operator of a CPU device comes to what the machine gives; each is measured for `milliseconds`. */
  measureOperators(device: DeviceHandle, milliseconds: number): Promise<OperatorSpeed[]>;
}
