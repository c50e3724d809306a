/** The contents of a profile in bench/profiles: devices, network, and the model whose bytes and times are used. */
import type { ExpertStorage } from '../../shared/settings/setting-choices.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { Part } from '../../shared/model/expert-parts.js';
import type { ModelFormat } from './model-format.js';

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
  /** Null: the cluster has no shadow. */
  shadow: ProfiledDevice | null;
  /** The machine that holds the whole model and generates alone, for comparison; null: none. */
  cached: ProfiledDevice | null;
}

export interface ProfiledModel {
  name: string;
  shape: ModelShape;
  /** True if the LM head is the embedding matrix. */
  tiedEmbeddings: boolean;
  /** The format in which the model is published. */
  quantization: 'none' | 'mxfp4' | 'fp8';
  /** Bytes of one weight that is not quantized, in the format of computation: 4 for FP32. */
  weightBytes: number;
  /** The format that a plan asks for, or that of a quantized model on disk; it counts instead of `quantization`. Left out: there is none. */
  format?: ModelFormat | null;
}

export interface ProfiledDevice {
  memoryBytes: number;
  /** Bandwidth from storage to the device. */
  linkBytesPerS: number;
  linkLatencyMs: number;
  /** Bandwidth of the device's memory for operators that stream weights. */
  weightBytesPerS: number;
  flopPerS: number;
  /** Overheads beside reading weights: of a layer without its routed experts; of an expert; of the LM head. */
  denseOverheadMs: number;
  expertOverheadMs: number;
  lmHeadOverheadMs: number;
  /** Rate of recovering packed experts, in plain bytes; it overlaps with the link. */
  recoverBytesPerS: number;
  /** Device memory beside weights, slots, and keys and values: context and activations. */
  reservedBytes: number;
  /** Bytes of one weight in this device's memory (the shadow's weights are quantized). */
  weightBytes: number;
  /** The same of a weight of a routed expert, on a device that is no worker; null: as weightBytes. */
  expertWeightBytes: number | null;
  /** Null: the profile says nothing about energy. */
  energy: ProfiledEnergy | null;
}

/** Picojoules, for modelled energy. */
export interface ProfiledEnergy {
  linkPjPerBit: number;
  memoryPjPerBit: number;
  operationPj: number;
}

export interface ProfiledNetwork {
  bytesPerS: number;
  roundTripMs: number;
  /** half: a card cannot send and receive at the same time. */
  duplex: 'half' | 'full';
  /** Bytes of a message beside its payload. */
  messageOverheadBytes: number;
}

/** Time of an operator on some rows (tokens): overheadMs + max(weightsMs, rows * rowMs). */
export interface OperatorTime {
  overheadMs: number;
  /** Time to read its weights. */
  weightsMs: number;
  /** Time to multiply one row by the weights. */
  rowMs: number;
}

/** A layer without its routed experts. */
export interface LayerTime extends OperatorTime {
  /** Empty: its mixer is not attention. An indexer's scores and attention to what it chooses are two. */
  context: readonly ContextTime[];
}

/** Times of attention over the context, or of an indexer's scores. The longer of the two adds to the layer's other time. */
export interface ContextTime {
  /** Time to read the cache row of one position. */
  positionMs: number;
  /** Time for one row and one position that it attends to. */
  rowPositionMs: number;
  /** Most positions that a row attends to; 0: all positions before it. */
  window: number;
}

/** Times of the operations of a paced device. */
export interface DeviceTimes {
  /**
   * Entry e has the layers that Pass.attend of expert layer e computes, and Pass.forward before that layer's experts: the layers without
   * experts before it, then its mixer, router and `always` part. For a model with more expert layers, the entries repeat from the first.
   */
  attendLayers: readonly (readonly LayerTime[])[];
  /** Layers after the last expert layer: they run at the end of that layer's Pass.combine, and at the end of Pass.forward. */
  layersBehind: readonly LayerTime[];
  /** Pass.chooseAhead. */
  router: OperatorTime;
  /** One expert: ExpertSlots.execute, and in Pass.forward each activated expert of each layer, one after the other. */
  expert: OperatorTime;
  /** Pass.logits. */
  lmHead: OperatorTime;
  /** Time to load one expert over the link from storage into a slot. All loads of a device share its link. */
  loadMs: number;
  /** The part of loadMs for reading exponents; the rest reads signs and mantissas. A part that an entry holds is not read. */
  exponentShare: number;
  /** Time to recover plain values: a load takes at least this long, even if it reads little. */
  recoverMs: number;
}

/** Bytes of an entry that caches one part of an expert. */
type PartEntryBytes = Record<`${Part}EntryBytes`, number>;

/** Bytes of data on a paced device, for the model that it emulates. */
export interface DeviceBytes extends PartEntryBytes {
  /** Embedding, LM head and final norm. */
  outerBytes: number;
  /** Dense weights of one layer; if layers differ, their mean. */
  denseLayerBytes: number;
  /** A resident expert. */
  expertBytes: number;
  /** A slot for one expert, and the memory that all slots share. */
  slotBytes: number;
  slotSharedBytes: number;
  /** Cache row of one layer and position for attention; if layers differ, their mean. */
  cacheRowBytes: number;
  /** Recurrent states of one sequence, all layers. */
  stateBytes: number;
}

/** Times and bytes of one device of a profile for the profile's model. */
export type EmulatedDevice = DeviceTimes & DeviceBytes;

/** Bytes per weight of an expert: in the worker's storage (its exponent or scale alone, and all of it) and in its slot. */
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

/** A form by the name that the settings have for it, or one that is planned with alone. */
export type PlannedStorage = ExpertStorage | StorageForm;

export function storageForm(storage: PlannedStorage): StorageForm {
  return typeof storage === 'string' ? STORAGE_FORMS[storage] : storage;
}

/** The format in which workers store experts when the settings do not name one: as planned, as published, or as computed. */
export function shippedStorage({ format, quantization, weightBytes }: ProfiledModel): PlannedStorage {
  if (format) return codesForm(format.expertBytes);
  if (quantization !== 'none') return quantization;
  return weightBytes > 2 ? 'fp32' : 'bf16';
}

/** Codes with scales, in a worker's memory as in its storage. Nothing is recovered, so the parts have no use: all is one. */
function codesForm(bytes: number): StorageForm {
  return { exponentBytes: 0, storedBytes: bytes, slotBytes: bytes };
}

export function operatorMs({ overheadMs, weightsMs, rowMs }: OperatorTime, rows: number): number {
  return overheadMs + Math.max(weightsMs, rows * rowMs);
}

/** Time of Pass.attend of an expert layer. `positions`: positions of the pass's rows. */
export function attendMs({ attendLayers }: DeviceTimes, expertLayer: number, positions: Int32Array): number {
  return layersMs(attendLayers[expertLayer % attendLayers.length] ?? [], positions);
}

/** Time of the layers after the last expert layer. */
export function behindMs({ layersBehind }: DeviceTimes, positions: Int32Array): number {
  return layersMs(layersBehind, positions);
}

/** Time of these layers on main, one after the other, for rows at these positions. */
export function layersMs(layers: readonly LayerTime[], positions: Int32Array): number {
  return layers.reduce(
    (sum, layer) =>
      layer.context.reduce(
        (time, context) => time + contextMs(context, positions),
        sum + operatorMs(layer, positions.length),
      ),
    0,
  );
}

/** Cached keys and values of a sequence are read once for all its rows; all rows of a pass count as rows of one sequence. */
function contextMs({ positionMs, rowPositionMs, window }: ContextTime, positions: Int32Array): number {
  let [most, seen] = [0, 0];
  for (const position of positions) {
    const ofRow = window === 0 ? position + 1 : Math.min(position + 1, window);
    most = Math.max(most, ofRow);
    seen += ofRow;
  }
  return Math.max(most * positionMs, seen * rowPositionMs);
}
