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
  /** Of the attention, norms and gate of a layer, beside reading its weights; of an expert; of the LM head. */
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

/** Time of an operator on some rows: overheadMs + max(weightsMs, rows * rowMs). native's OperatorTime. */
export interface OperatorTime {
  overheadMs: number;
  weightsMs: number;
  rowMs: number;
}

/** Times and bytes of one device of the profile for its model: native's DeviceEmulation. */
export interface EmulatedDevice {
  denseLayer: OperatorTime;
  expert: OperatorTime;
  lmHead: OperatorTime;
  loadMs: number;
  outerBytes: number;
  denseLayerBytes: number;
  expertBytes: number;
  slotBytes: number;
  slotSharedBytes: number;
  keyValueRowBytes: number;
}

/** Bytes that one weight of an expert takes in the worker's storage and in its slot. */
export const STORAGE_FORMS: Record<ExpertStorage, { storedBytes: number; slotBytes: number }> = {
  fp32: { storedBytes: 4, slotBytes: 4 },
  bf16: { storedBytes: 2, slotBytes: 2 },
  fixed4: { storedBytes: 1.5, slotBytes: 2 },
  huffman: { storedBytes: 4 / 3, slotBytes: 2 },
};

export function operatorMs({ overheadMs, weightsMs, rowMs }: OperatorTime, rows: number): number {
  return overheadMs + Math.max(weightsMs, rows * rowMs);
}
