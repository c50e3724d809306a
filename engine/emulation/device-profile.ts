/** What a profile in bench/profiles says: devices, network and the model whose bytes and times are taken. */
import type { ExpertStorage } from '../../shared/settings/node-settings.js';
import type { Quantization } from '../../packs/model-config/config-reader.js';
import type { ModelShape } from '../../shared/model/model-shape.js';

export type ProfiledRole = 'main' | 'shadow' | 'worker' | 'cached';

export interface DeviceProfile {
  name: string;
  model: ProfiledModel;
  devices: ProfiledDevices;
  network: ProfiledNetwork;
}

export interface ProfiledDevices {
  main: ProfiledDevice;
  worker: ProfiledDevice;
  /** Null: there is none. */
  shadow: ProfiledDevice | null;
  /** The machine that holds the whole model and generates alone, for comparison; null: there is none. */
  cached: ProfiledDevice | null;
}

export interface ProfiledModel {
  name: string;
  shape: ModelShape;
  /** The LM head is the embedding. */
  tiedEmbeddings: boolean;
  /** As its maker ships it. */
  quantization: Quantization;
  /** Of a weight that is not quantized, as computed with: 4 for FP32. */
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
  /** Of a layer without its routed experts, beside reading its weights; of an expert; of the LM head. */
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

/** A layer without its routed experts. */
export interface LayerTime extends OperatorTime {
  /** Null: its mixer does not look back by attention. */
  context: ContextTime | null;
}

/** Attention over the context, which takes the longer of both beside all else. */
export interface ContextTime {
  /** Reading what the layer keeps of one position. */
  positionMs: number;
  /** One row with one position that it sees. */
  rowPositionMs: number;
  /** Positions that a row sees at most; 0: all before it. */
  window: number;
}

/** How long the operations of a paced device take. */
export interface DeviceTimes {
  /**
   * Entry e: what Pass.attend of expert layer e computes, and Pass.forward before that layer's experts: layers without experts that come
   * before it, then its own mixer, router and `always`. A model with more expert layers begins again with the first entry.
   */
  attendLayers: readonly (readonly LayerTime[])[];
  /** Layers behind the last expert layer: at the end of Pass.combine of that one, and of Pass.forward. */
  layersBehind: readonly LayerTime[];
  /** Pass.chooseAhead. */
  router: OperatorTime;
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
  /** All dense weights of one layer; where layers differ, their mean. */
  denseLayerBytes: number;
  /** A resident expert. */
  expertBytes: number;
  /** A slot for one expert, and what slots share. */
  slotBytes: number;
  slotSharedBytes: number;
  /** An entry that keeps a part of an expert. */
  exponentEntryBytes: number;
  signMantissaEntryBytes: number;
  /** What one layer keeps of one position for attention; where layers differ, their mean. */
  cacheRowBytes: number;
  /** Recurrent states of one sequence, all layers. */
  stateBytes: number;
}

/** Times and bytes of one device of a profile for the profile's model. */
export type EmulatedDevice = DeviceTimes & DeviceBytes;

/** Bytes that one weight of an expert takes in the worker's storage (its exponent or scale alone, and all of it) and in its slot. */
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
  mxfp4: { exponentBytes: 1 / 32, storedBytes: 17 / 32, slotBytes: 17 / 32 },
  fp8: { exponentBytes: 1 / 32, storedBytes: 33 / 32, slotBytes: 33 / 32 },
};

/** How workers keep the experts of a model where nothing else is asked for: as its maker ships them, or as they are computed with. */
export function shippedStorage({ quantization, weightBytes }: ProfiledModel): ExpertStorage {
  if (quantization !== 'none') return quantization;
  return weightBytes > 2 ? 'fp32' : 'bf16';
}

export function operatorMs({ overheadMs, weightsMs, rowMs }: OperatorTime, rows: number): number {
  return overheadMs + Math.max(weightsMs, rows * rowMs);
}

/** Pass.attend of an expert layer. `positions`: of the pass's rows. */
export function attendMs({ attendLayers }: DeviceTimes, expertLayer: number, positions: Int32Array): number {
  return layersMs(attendLayers[expertLayer % attendLayers.length] ?? [], positions);
}

/** What comes behind the last expert layer. */
export function behindMs({ layersBehind }: DeviceTimes, positions: Int32Array): number {
  return layersMs(layersBehind, positions);
}

/** Layers of main, one after the other, for rows at these positions. */
export function layersMs(layers: readonly LayerTime[], positions: Int32Array): number {
  return layers.reduce((sum, layer) => sum + operatorMs(layer, positions.length) + contextMs(layer, positions), 0);
}

/** What is kept of a sequence is read once for all of its rows; a pass's rows count as those of one sequence. */
function contextMs({ context }: LayerTime, positions: Int32Array): number {
  if (context === null) return 0;
  const { positionMs, rowPositionMs, window } = context;
  let [most, seen] = [0, 0];
  for (const position of positions) {
    const ofRow = window === 0 ? position + 1 : Math.min(position + 1, window);
    most = Math.max(most, ofRow);
    seen += ofRow;
  }
  return Math.max(most * positionMs, seen * rowPositionMs);
}
