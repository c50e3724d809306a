/** Slots that experts are loaded into, and how; part of the native addon (native/addon.d.ts). */
import type { GluShape } from '../shared/model/model-shape.js';
import type { ExpertSource, WeightFormat } from '../shared/model/tensor-source.js';

export interface ExpertShape {
  hiddenSize: number;
  glu: GluShape;
  format: WeightFormat;
}

/** What slots take: each slot, what they share (staging, activations), and each entry. */
export interface ExpertSlotBytes {
  slotBytes: number;
  sharedBytes: number;
  exponentEntryBytes: number;
  signMantissaEntryBytes: number;
}

/** How reads are put to storage: by threads that wait for one each, or by the kernel's queue. */
export type StorageWay = 'threads' | 'io_uring';
/** auto: io_uring for direct reads where the build and the kernel have it, else threads. */
export type WantedStorageWay = 'auto' | StorageWay;

export interface QueuedReadRequest {
  way: WantedStorageWay;
  /** Reads in flight at a time, 1 to 16. */
  depth: number;
  /** Past the page cache, where the file system allows that. */
  direct: boolean;
}

export interface QueuedReadSpeed {
  bytesPerS: number;
  readBytes: number;
  way: StorageWay;
  direct: boolean;
  /** Why io_uring was wanted and is not used; else empty. */
  ringRefusal: string;
}

/** How a loader reads. */
export interface StorageReads {
  way: StorageWay;
  depth: number;
  /** Past the page cache. */
  direct: boolean;
  /** Direct I/O was asked for, and a file system refused it: files there are read through the page cache. */
  directRefused: boolean;
  /** Why io_uring was wanted and is not used; else empty. */
  ringRefusal: string;
}

/** How the expert loader works, and what it is made for. PLAIN_LOADER of native/index.ts is the plainest. */
export interface LoaderOptions {
  /** 0: as many as leave the processor to those who execute. */
  decompressionThreads: number;
  /** Past the page cache, where the file system can. */
  directIo: boolean;
  /** Reads are held back to this rate, for measurements; 0: they are not. */
  storageBytesPerS: number;
  /** Reads in flight at a time, 1 to 16. Reads that are held back to a rate come one at a time. */
  readDepth: number;
  storageWay: WantedStorageWay;
  /** Entries keep parts of experts from one load to another: memory of the device, taken when the slots are made. */
  exponentEntries: number;
  signMantissaEntries: number;
  /**
   * The largest over all experts that will be loaded: the bytes of all chunks of the part, and those of one chunk of it that is
   * coded (0 where the part is stored raw). A chunk counts from and to the multiples of 4096 around it.
   * shared/model/part-sizes.ts finds them. The first two matter only where there are entries.
   */
  expertExponentBytes: number;
  expertSignMantissaBytes: number;
  shardExponentBytes: number;
  shardSignMantissaBytes: number;
  /** Slots have memory beside them to pack experts into (ExpertSlots.pack): BF16 on a processor. Left out: they have not. */
  packs?: boolean;
  /** Experts of all layers, each of which gets an address of its own where the device can give it one; 0: none does. */
  experts: number;
}

/** Where a part of an expert (exponents: plane 0; signs and mantissas: the other planes) comes from. */
export interface PartPlan {
  from: 'storage' | 'entry';
  /** The entry that holds it, or is to keep it; -1: it is not kept. */
  entry: number;
}

/** Place of one matrix in the order of all that are to be loaded (ZipMoE, Algorithm 1); smaller first. Integers. */
export interface TaskOrder {
  block: number;
  position: number;
}

/** gate, up, down. */
export type ExpertOrder = [TaskOrder, TaskOrder, TaskOrder];

export interface LoadRequest {
  exponents: PartPlan;
  signMantissa: PartPlan;
  /** null: after all loads that have an order, in the order asked for. */
  order: ExpertOrder | null;
  /** Before all that are not urgent. */
  urgent: boolean;
  /** Number of the expert in host memory (ExpertSlots.hold): what is held there is not read. Left out: it is not asked. */
  held?: number;
}

export interface LoadOutcome {
  /** False when cancel() came first; the slot is then empty. */
  loaded: boolean;
  /** From storage. */
  readBytes: number;
  /** Taken from host memory in place of storage; left out: none. */
  hostBytes?: number;
  /** From being asked for. */
  loadMs: number;
  /** Time of the storage: where reads of several loads are in flight together, each has its share of it. */
  exponentReadMs: number;
  signMantissaReadMs: number;
  /** Time of all decompression threads: checking, decoding, writing to the slot. */
  decompressMs: number;
  /** The entry named in the request holds the whole part, checked. After a rejection an entry that was to be filled does not. */
  exponentsKept: boolean;
  signMantissaKept: boolean;
}

/** What came of reading an expert into host memory. */
export interface HoldOutcome {
  /** False when it was cancelled. */
  held: boolean;
  /** Host memory that it takes. */
  bytes: number;
  /** From storage. */
  readBytes: number;
}

/** What came of packing the expert in a slot. unfit: fixed4 cannot hold it, or only in more bytes. */
export type RecodeOutcome = 'packed' | 'givenUp' | 'unfit';

export interface ExpertPlace {
  layer: number;
  expert: number;
}

/** A worker's few places for experts, all memory taken from the device when the pool is made. */
export interface ExpertSlots {
  readonly count: number;
  readonly slotBytes: number;
  readonly storageReads: StorageReads;
  /**
   * Says where an expert lies, once; returns its number, by which it is loaded. Numbers count from 0 in the order of registering: the
   * first LoaderOptions.experts of them have the addresses that the device can give. `place`: which expert it is, for whoever writes down
   * what is loaded; the addon asks for none.
   */
  register(source: ExpertSource, place?: ExpertPlace): number;
  /**
   * One load at a time per slot, and none while it executes. Loads of several slots share the storage's reads and the decompression
   * threads; the request's order says whose operations come first. What was in the slot is gone at once, whether or not the load
   * succeeds. Rejects with PACK_CORRUPT, MODEL_CORRUPT or STORAGE_FAILED; INTERNAL for an entry that is being written, is to be
   * written while it is read, or does not hold the expert's part.
   */
  load(slot: number, expert: number, request: LoadRequest): Promise<LoadOutcome>;
  /** Stops the slot's load, if one is under way: its promise settles at once or after the operation in work, with loaded: false. */
  cancel(slot: number): void;
  /** Main waits for it: the operations of the slot's load come first from now on. */
  prioritize(slot: number): void;
  /** Another place in the order for the slot's load, if one is under way. */
  reorder(slot: number, order: ExpertOrder | null): void;
  /** Runs the expert in the slot on rows hidden states (rows x hiddenSize FP32) and fills output likewise. */
  execute(slot: number, rows: number, hidden: Uint8Array, output: Uint8Array): Promise<{ executeMs: number }>;
  /**
   * The same on the calling thread, which does nothing else meanwhile; returns milliseconds. Null: the device is none of the processor's, or
   * runs something else at present, and nothing was done. Left out: it cannot.
   */
  executeHere?: ((slot: number, rows: number, hidden: Uint8Array, output: Uint8Array) => number | null) | undefined;
  /** Gives the slot's memory back to the device; what was in it is gone, and nothing is loaded there before take(). Not while it is loaded or executes. */
  letGo(slot: number): void;
  /** Takes the slot's memory again; does nothing where the slot has it. Throws DEVICE_OUT_OF_MEMORY. */
  take(slot: number): void;
  /**
   * Reads a registered expert's stored bytes into host memory and checks them; loads that name its number in `held` take them from there.
   * Comes after all loads, and reads nothing while an urgent one is under way. One call at a time. Rejects with DEVICE_OUT_OF_MEMORY,
   * STORAGE_FAILED, PACK_CORRUPT or MODEL_CORRUPT; nothing is then held of the expert.
   */
  hold(expert: number): Promise<HoldOutcome>;
  /** Ends the hold under way, if there is one, soon and with held: false. */
  cancelHold(): void;
  /** The memory goes back once no load reads it. Does nothing for an expert that is not held. */
  dropHeld(expert: number): void;
  /**
   * Turns the BF16 expert in the slot into fixed4, which executes faster where memory limits, to the same bits. Only with
   * LoaderOptions.packs; one call at a time, behind a hold under way. Loads and executes of the slot may come at any time: it is given up
   * then. Rejects with INTERNAL.
   */
  pack(slot: number): Promise<RecodeOutcome>;
  /** The pack under way is given up soon, if there is one. */
  cancelPack(): void;
  dispose(): void;
}
