/** Types of the slots into which experts are loaded; part of the native addon (native/addon.d.ts). */
import type { ExpertId } from '../shared/model/expert-id.js';
import type { PerPart } from '../shared/model/expert-parts.js';
import type { GluShape } from '../shared/model/model-shape.js';
import type { ExpertFormats } from '../shared/model/expert-formats.js';
import type { ExpertSource, SliceReading, WeightFormat } from '../shared/model/tensor-source.js';

export interface ExpertShape {
  hiddenSize: number;
  glu: GluShape;
  format: WeightFormat;
  /** With the format `shipped`: those of all experts that the slots may have to hold, each once. */
  shipped?: readonly ExpertFormats[];
}

/** Memory that slots need: each slot, the lower slices in one, the part that all share (staging, activations), and each entry. */
export interface ExpertSlotBytes {
  /** A sliced expert takes so much for its upper slices. */
  slotBytes: number;
  /** 0 for experts that are not sliced. */
  lowerBytes: number;
  sharedBytes: number;
  entryBytes: PerPart<number>;
}

/** The way in which reads reach storage: threads that wait for one read each, or the kernel's queue. */
export type StorageWay = 'threads' | 'io_uring';
/** auto: io_uring for direct reads where the build and the kernel have it, else threads. */
export type WantedStorageWay = 'auto' | StorageWay;

export interface QueuedReadRequest {
  way: WantedStorageWay;
  /** Reads in flight at a time, 1 to 16. */
  depth: number;
  /** Reads go past the page cache, where the file system allows that. */
  direct: boolean;
}

export interface QueuedReadSpeed {
  bytesPerS: number;
  readBytes: number;
  way: StorageWay;
  direct: boolean;
  /** The reason why io_uring was wanted and is not used; else empty. */
  ringRefusal: string;
}

/** The way in which a loader reads. */
export interface StorageReads {
  way: StorageWay;
  depth: number;
  /** Past the page cache. */
  direct: boolean;
  /** Direct I/O was requested, but a file system refused it: its files are read through the page cache. */
  directRefused: boolean;
  /** The reason why io_uring was wanted and is not used; else empty. */
  ringRefusal: string;
}

/** Settings of the expert loader. PLAIN_LOADER of native/index.ts is the simplest. */
export interface LoaderOptions {
  /** 0: a number that leaves enough of the processor to executes. */
  decompressionThreads: number;
  /** Reads go past the page cache, where the file system can do that. */
  directIo: boolean;
  /** Reads are slowed down to this rate, for measurements; 0: they are not. */
  storageBytesPerS: number;
  /** Reads in flight at a time, 1 to 16. Reads with a limited rate come one at a time. */
  readDepth: number;
  storageWay: WantedStorageWay;
  /** Entries cache parts of experts from one load to another. They are device memory that is taken when the slots are made. */
  entries: PerPart<number>;
  /**
   * Bytes of all chunks of the part, and bytes of one coded chunk of it (0 where the part is stored raw). Each is the maximum over all experts
   * that will be loaded. A chunk's range is rounded outwards to multiples of 4096. shared/model/part-sizes.ts computes these values.
   * `expertBytes` matters only where there are entries.
   */
  expertBytes: PerPart<number>;
  shardBytes: PerPart<number>;
  /** The pool has extra memory for packing experts (ExpertSlots.pack): BF16 on a processor. Left out: no such memory. */
  packs?: boolean;
  /** Number of experts in all layers, if each is to get its own address where the device can give one; 0: none gets one. */
  experts: number;
}

/** The source of one part of an expert. */
export interface PartPlan {
  /** notWanted: only for a sliced expert, whose upper slices are the part `exponent` and whose lower slices are the part `signMantissa`. */
  from: 'storage' | 'entry' | 'notWanted';
  /** The entry that holds the part, or that will cache it; -1: the part is not cached, or not wanted. */
  entry: number;
}

/** Place of one matrix in the order of all matrices that are to be loaded (ZipMoE, Algorithm 1); smaller first. Integers. */
export interface TaskOrder {
  block: number;
  position: number;
}

/** gate, up, down. */
export type ExpertOrder = [TaskOrder, TaskOrder, TaskOrder];

export interface LoadRequest {
  parts: PerPart<PartPlan>;
  /** null: behind all loads that have an order, in the order of the calls. */
  order: ExpertOrder | null;
  /** This load comes before all loads that are not urgent. */
  urgent: boolean;
  /**
   * Number of the expert in host memory (ExpertSlots.hold): bytes that are held there are not read from storage. Left out: host memory is
   * not used.
   */
  held?: number;
}

export interface LoadOutcome {
  /** False when cancel() came first; the slot is then empty, or keeps its upper slices where only lower ones were wanted. */
  loaded: boolean;
  /** Bytes read from storage. */
  readBytes: number;
  /** Bytes taken from host memory in place of storage; left out: none. */
  hostBytes?: number;
  /** Time from the call to its end. */
  loadMs: number;
  /** Storage time: reads of several loads that are in flight together share it among them. */
  readMs: PerPart<number>;
  /** Total time of all decompression threads: checking, decoding, writing to the slot. */
  decompressMs: number;
  /** The entry of the request now holds the whole part, checked. After a rejection an entry that was to be filled does not hold it. */
  cached: PerPart<boolean>;
}

/** Result of reading an expert into host memory. */
export interface HoldOutcome {
  /** False when it was cancelled. */
  held: boolean;
  /** Host memory that the expert takes. */
  bytes: number;
  /** Bytes read from storage. */
  readBytes: number;
}

/** Result of packing the expert in a slot. unfit: fixed4 cannot hold it, or would take more bytes. */
export type RecodeOutcome = 'packed' | 'givenUp' | 'unfit';

/** A worker's pool of slots for experts; all memory is taken from the device when the pool is made. */
export interface ExpertSlots {
  readonly count: number;
  readonly slotBytes: number;
  readonly storageReads: StorageReads;
  /**
   * Registers the source of an expert, once; returns the number by which it is loaded. Numbers count from 0 in the order of registering:
   * the first LoaderOptions.experts numbers get the addresses that the device can give. `place` identifies the expert for code that records
   * loads; the addon does not use it.
   */
  register(source: ExpertSource, place?: ExpertId): number;
  /**
   * One load at a time per slot, and none while it executes. Loads of several slots share the storage's reads and the decompression
   * threads; the request's order decides which operations come first. The old contents of the slot are lost at once, whether or not the
   * load succeeds. Rejects with PACK_CORRUPT, MODEL_CORRUPT or STORAGE_FAILED; INTERNAL for an entry that is being written, that is read
   * while it should be written, or that does not hold the expert's part.
   * A load of a sliced expert that does not want the lower slices leaves a slot that executes with the upper ones alone. A later load of
   * the same expert that wants the lower slices alone adds them: executes that read the upper ones alone go on meanwhile, and the slot
   * keeps these however the load ends. Lower slices need takeLower() first. Rejects with INTERNAL for lower slices of another expert, and
   * where the slot holds both already.
   */
  load(slot: number, expert: number, request: LoadRequest): Promise<LoadOutcome>;
  /** Stops the slot's running load, if there is one: its promise settles with loaded: false, at once or after the current operation. */
  cancel(slot: number): void;
  /** Main waits for this load: its operations come first from now on. */
  prioritize(slot: number): void;
  /** Changes the order of the slot's running load, if there is one. */
  reorder(slot: number, order: ExpertOrder | null): void;
  /**
   * Runs the expert in the slot on `rows` hidden states (rows x hiddenSize FP32) and fills `output` in the same layout. `readings`: how each
   * row reads a sliced expert; left out, or empty: every row reads both slices. A row's result depends on its own reading alone; rows of one
   * reading that follow one another take the least time. Rejects with INTERNAL where a row reads both slices and the slot has no lower ones.
   */
  execute(
    slot: number,
    rows: number,
    hidden: Uint8Array,
    output: Uint8Array,
    readings?: readonly SliceReading[],
  ): Promise<{ executeMs: number }>;
  /**
   * Does the same on the calling thread, which is blocked meanwhile; returns milliseconds. Null: nothing was done, because the device is
   * not a processor or runs something else at present. The method is absent where the implementation cannot do this.
   */
  executeHere?:
    | ((
        slot: number,
        rows: number,
        hidden: Uint8Array,
        output: Uint8Array,
        readings?: readonly SliceReading[],
      ) => number | null)
    | undefined;
  /**
   * Gives the slot's memory back to the device. Its contents are lost, and nothing can be loaded there before take(). Not to be called
   * while the slot loads or executes.
   */
  letGo(slot: number): void;
  /** Allocates the slot's memory again; does nothing where the slot has it. Throws DEVICE_OUT_OF_MEMORY. */
  take(slot: number): void;
  /**
   * The same for the memory of the slot's lower slices, which it does not have at first, and which letGo() gives back, too. The upper slices
   * stay. Throws INTERNAL while the slot loads, or executes with both slices; takeLower also for experts that are not sliced.
   */
  letGoLower(slot: number): void;
  takeLower(slot: number): void;
  /**
   * Reads a registered expert's stored bytes into host memory and checks them; loads that name its number in `held` take them from there.
   * It comes after all loads, and reads nothing while an urgent load is running. One call at a time. Rejects with DEVICE_OUT_OF_MEMORY,
   * STORAGE_FAILED, PACK_CORRUPT or MODEL_CORRUPT; then no part of the expert is held.
   */
  hold(expert: number): Promise<HoldOutcome>;
  /** Ends the running hold soon, if there is one, with held: false. */
  cancelHold(): void;
  /** Frees the expert's host memory once no load reads it. Does nothing for an expert that is not held. */
  dropHeld(expert: number): void;
  /**
   * Converts the BF16 expert in the slot to fixed4. The results keep the same bits, and executes are faster where memory bandwidth limits
   * them. Only with LoaderOptions.packs; one call at a time; it waits for a running hold. The slot may be loaded or executed at any time:
   * the pack is then given up. Rejects with INTERNAL.
   */
  pack(slot: number): Promise<RecodeOutcome>;
  /** Ends the running pack soon, if there is one: it is given up. */
  cancelPack(): void;
  dispose(): void;
}

/** The same objects as the addon takes and gives them (native/part-fields.ts). */
export interface FlatLoaderOptions extends Omit<LoaderOptions, 'entries' | 'expertBytes' | 'shardBytes'> {
  exponentEntries: number;
  signMantissaEntries: number;
  expertExponentBytes: number;
  expertSignMantissaBytes: number;
  shardExponentBytes: number;
  shardSignMantissaBytes: number;
}

export interface FlatSlotBytes extends Omit<ExpertSlotBytes, 'entryBytes'> {
  exponentEntryBytes: number;
  signMantissaEntryBytes: number;
}

export interface FlatLoadRequest extends Omit<LoadRequest, 'parts'> {
  exponents: PartPlan;
  signMantissa: PartPlan;
}

export interface FlatLoadOutcome extends Omit<LoadOutcome, 'readMs' | 'cached'> {
  exponentReadMs: number;
  signMantissaReadMs: number;
  exponentsKept: boolean;
  signMantissaKept: boolean;
}

/** ExpertSlots as the addon makes them. */
export interface FlatExpertSlots extends Omit<ExpertSlots, 'load'> {
  load(slot: number, expert: number, request: FlatLoadRequest): Promise<FlatLoadOutcome>;
}
