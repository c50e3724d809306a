/** What a profile in bench/profiles says: devices, network and the model whose bytes and times are taken. */
import type { ExpertStorage } from '../config/node-settings.js';

export type ProfiledRole = 'main' | 'shadow' | 'worker' | 'cached';

export interface DeviceProfile {
  name: string;
  model: ProfiledModel;
  /** 'cached': the machine that holds the whole model and generates alone. */
  devices: Record<ProfiledRole, ProfiledDevice>;
  network: ProfiledNetwork;
}

export interface ProfiledModel {
  name: string;
  layers: number;
  hiddenSize: number;
  intermediateSize: number;
  heads: number;
  keyValueHeads: number;
  headDim: number;
  vocabSize: number;
  experts: number;
  expertsPerToken: number;
  /** As computed with: 4 for FP32. */
  weightBytes: number;
}

export interface ProfiledDevice {
  memoryBytes: number;
  /** Storage -> device. */
  linkBytesPerS: number;
  linkLatencyMs: number;
  /** What the device's memory gives to operators that stream weights. */
  weightBytesPerS: number;
  flopPerS: number;
  /** Of the attention, norms and router of a layer, beside reading its weights; of an expert; of the LM head. */
  denseOverheadMs: number;
  expertOverheadMs: number;
  lmHeadOverheadMs: number;
  /** Plain bytes that packed experts are recovered to; it overlaps with the link. */
  recoverBytesPerS: number;
  /** Device memory beside weights, slots and keys and values (context, activations). */
  reservedBytes: number;
  /** As the weights stand in its memory (the shadow's are quantized). */
  weightBytes: number;
}

export interface ProfiledNetwork {
  bytesPerS: number;
  roundTripMs: number;
  /** half: a card either sends or receives. */
  duplex: 'half' | 'full';
  /** What a message takes beside its payload. */
  messageOverheadBytes: number;
}

/** Time of an operator on some rows (tokens): overheadMs + max(weightsMs, rows * rowMs). */
export interface OperatorTime {
  overheadMs: number;
  /** Reading its weights. */
  weightsMs: number;
  /** Multiplying one row by them. */
  rowMs: number;
}

/** How long the operations of a paced device take. */
export interface DeviceTimes {
  /** Attention, norms and router of one layer: Pass.attend, and each layer of Pass.forward. */
  denseLayer: OperatorTime;
  /** One expert: ExpertSlots.execute, and each activated expert of each layer of Pass.forward, one after the other. */
  expert: OperatorTime;
  /** Pass.logits. */
  lmHead: OperatorTime;
  /** One expert over the link from storage into a slot. The loads of a device share its link. */
  loadMs: number;
  /** Of loadMs, what reading the exponents takes; the rest reads signs and mantissas. A part that is in an entry is not read. */
  exponentShare: number;
  /** Recovering plain values: a load takes no less, however little it reads. */
  recoverMs: number;
}

/** What is held on a paced device, in bytes of the model that it stands for. */
export interface DeviceBytes {
  /** Embedding, LM head and final norm. */
  outerBytes: number;
  /** All dense weights of one layer. */
  denseLayerBytes: number;
  /** A resident expert. */
  expertBytes: number;
  /** A slot for one expert, and what slots share. */
  slotBytes: number;
  slotSharedBytes: number;
  /** An entry that keeps a part of an expert. */
  exponentEntryBytes: number;
  signMantissaEntryBytes: number;
  /** Keys and values of one position in one layer. */
  keyValueRowBytes: number;
}

/** Times and bytes of one device of a profile for the profile's model. */
export type EmulatedDevice = DeviceTimes & DeviceBytes;

/** Bytes that one weight of an expert takes in the worker's storage (its exponent alone, and all of it) and in its slot. */
export interface StorageForm {
  exponentBytes: number;
  storedBytes: number;
  slotBytes: number;
}

export const STORAGE_FORMS: Record<ExpertStorage, StorageForm> = {
  fp32: { exponentBytes: 1, storedBytes: 4, slotBytes: 4 },
  bf16: { exponentBytes: 1, storedBytes: 2, slotBytes: 2 },
  fixed4: { exponentBytes: 1 / 2, storedBytes: 1.5, slotBytes: 2 },
  huffman: { exponentBytes: 1 / 3, storedBytes: 4 / 3, slotBytes: 2 },
};

export function operatorMs({ overheadMs, weightsMs, rowMs }: OperatorTime, rows: number): number {
  return overheadMs + Math.max(weightsMs, rows * rowMs);
}
