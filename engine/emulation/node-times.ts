import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  expertMatrixValues,
  expertLayerNumbers,
  type ModelShape,
  recurrentStateFloats,
} from '../../shared/model/model-shape.js';
import type { ModelFormat } from './model-format.js';
import {
  STORAGE_FORMS,
  storageForm,
  type DeviceBytes,
  type DeviceProfile,
  type DeviceTimes,
  type EmulatedDevice,
  type LayerTime,
  type OperatorTime,
  type PlannedStorage,
  type ProfiledDevice,
  type ProfiledModel,
  type ProfiledRole,
  type StorageForm,
} from './device-profile.js';
import { FLOAT_BYTES, layersWork, cacheRowBytes, vocabularyWeights, type LayerArithmetic } from './layer-arithmetic.js';

const MS_PER_S = 1000;

/**
 * Times and bytes of one device of a profile for the profiled model. Pure.
 * An operator reads its weights at weightBytesPerS while it multiplies rows by them at flopPerS (2 operations per parameter and row). A
 * worker's experts have the bytes of the storage form; on every other device experts have the bytes that the profile gives them there, or those of the
 * model's format if these are fewer. So kernels of every format are taken to reach the same share of the memory's bandwidth. A load takes the
 * link's time, or the time to recover plain values if that is longer (OD-MoE 3.1; ZipMoE 3.2 for packed forms). reservedBytes count with the
 * first allocation of a device: they are in the shared bytes of slots on a worker, and in outerBytes elsewhere.
 */
export function nodeTimes(profile: DeviceProfile, role: ProfiledRole, expertStorage: PlannedStorage): EmulatedDevice {
  const { shape } = profile.model;
  const device = deviceOf(profile, role);
  const work = layersWork(shape);
  const form = storageForm(expertStorage);
  const vocabulary = vocabularyBytes(profile, role);
  const expertWeightBytes = role === 'worker' ? form.slotBytes : (device.expertWeightBytes ?? device.weightBytes);
  return {
    ...layerTimes(work, shape, device),
    router: operatorTime(shape.experts * shape.hiddenSize, device.weightBytes, 0, device),
    expert: operatorTime(expertMatrixValues(shape), expertWeightBytes, device.expertOverheadMs, device),
    lmHead: operatorTime(vocabularyWeights(shape), vocabulary.headBytes, device.lmHeadOverheadMs, device),
    loadMs: loadMs(expertMatrixValues(shape), form, device),
    exponentShare: form.exponentBytes / form.storedBytes,
    recoverMs: recoverMs(expertMatrixValues(shape), form, device),
    ...modelBytes(work, profile.model, { ...device, ...vocabulary }, role),
    ...expertBytes(expertMatrixValues(shape), expertWeightBytes, form, device, role),
  };
}

/** The device of a role, with the bytes per weight of the model's dense parts on it. Throws USAGE when the profile has no such device. */
export function deviceOf(profile: DeviceProfile, role: ProfiledRole): ProfiledDevice {
  const device = profiledDevice(profile, role);
  const { model } = profile;
  if (model.format) {
    const { denseBytes, expertBytes } = model.format;
    const expertWeightBytes = Math.min(device.expertWeightBytes ?? device.weightBytes, expertBytes);
    return { ...device, weightBytes: Math.min(device.weightBytes, denseBytes), expertWeightBytes };
  }
  // In an FP8 model the attention matrices are FP8, too.
  if (model.quantization !== 'fp8') return device;
  return { ...device, weightBytes: Math.min(device.weightBytes, STORAGE_FORMS.fp8.slotBytes) };
}

function profiledDevice({ name, devices }: DeviceProfile, role: ProfiledRole): ProfiledDevice {
  const device = devices[role];
  if (device !== null) return device;
  throw new OdmoeError('USAGE', `the profile ${name} has no ${role}: take another one, or do without`);
}

type VocabularyBytes = Pick<ModelFormat, 'embeddingBytes' | 'headBytes'>;

/** Bytes of a weight of embedding and head on this device. */
function vocabularyBytes(profile: DeviceProfile, role: ProfiledRole): VocabularyBytes {
  const { format } = profile.model;
  if (!format) {
    const { weightBytes } = deviceOf(profile, role);
    return { embeddingBytes: weightBytes, headBytes: weightBytes };
  }
  const { weightBytes } = profiledDevice(profile, role);
  return {
    embeddingBytes: Math.min(weightBytes, format.embeddingBytes),
    headBytes: Math.min(weightBytes, format.headBytes),
  };
}

/** Groups layers by the expert layer that they precede or belong to. */
function layerTimes(
  work: readonly LayerArithmetic[],
  shape: ModelShape,
  device: ProfiledDevice,
): Pick<DeviceTimes, 'attendLayers' | 'layersBehind'> {
  const times = work.map((layer) => layerTime(layer, device));
  const ends = expertLayerNumbers(shape).map((layer) => layer + 1);
  return {
    attendLayers: ends.map((end, expertLayer) => times.slice(expertLayer === 0 ? 0 : ends[expertLayer - 1], end)),
    layersBehind: times.slice(ends.at(-1) ?? 0),
  };
}

function layerTime({ weights, stateBytes, rowFlop, context }: LayerArithmetic, device: ProfiledDevice): LayerTime {
  const { weightBytes, weightBytesPerS, flopPerS } = device;
  return {
    overheadMs: device.denseOverheadMs,
    weightsMs: ((weights * weightBytes + stateBytes) / weightBytesPerS) * MS_PER_S,
    rowMs: (rowFlop / flopPerS) * MS_PER_S,
    context: context.map(({ positionBytes, rowPositionFlop, window }) => ({
      positionMs: (positionBytes / weightBytesPerS) * MS_PER_S,
      rowPositionMs: (rowPositionFlop / flopPerS) * MS_PER_S,
      window,
    })),
  };
}

function modelBytes(
  work: readonly LayerArithmetic[],
  { shape, tiedEmbeddings }: ProfiledModel,
  { weightBytes, reservedBytes, embeddingBytes, headBytes }: ProfiledDevice & VocabularyBytes,
  role: ProfiledRole,
): Pick<DeviceBytes, 'outerBytes' | 'denseLayerBytes' | 'cacheRowBytes' | 'stateBytes'> {
  const matrixBytes = vocabularyWeights(shape) * (embeddingBytes + (tiedEmbeddings ? 0 : headBytes));
  const outerBytes = Math.round(matrixBytes + shape.hiddenSize * weightBytes);
  const { length: layers } = work;
  const weights = sum(work, (layer) => layer.weights);
  const states = sum(shape.layers, ({ mixer }) => recurrentStateFloats(mixer, shape.hiddenSize));
  return {
    outerBytes: role === 'worker' ? outerBytes : outerBytes + reservedBytes,
    denseLayerBytes: Math.round((weights * weightBytes) / layers),
    cacheRowBytes: Math.round(sum(work, cacheRowBytes) / layers),
    stateBytes: states * FLOAT_BYTES,
  };
}

function expertBytes(
  weights: number,
  weightBytes: number,
  form: StorageForm,
  { reservedBytes }: ProfiledDevice,
  role: ProfiledRole,
): Omit<DeviceBytes, 'outerBytes' | 'denseLayerBytes' | 'cacheRowBytes' | 'stateBytes'> {
  const bytes = Math.round(weights * weightBytes);
  return {
    expertBytes: bytes,
    slotBytes: bytes,
    slotSharedBytes: role === 'worker' ? reservedBytes : 0,
    exponentEntryBytes: Math.round(weights * form.exponentBytes),
    signMantissaEntryBytes: Math.round(weights * (form.storedBytes - form.exponentBytes)),
  };
}

function operatorTime(weights: number, weightBytes: number, overheadMs: number, device: ProfiledDevice): OperatorTime {
  return {
    overheadMs,
    weightsMs: ((weights * weightBytes) / device.weightBytesPerS) * MS_PER_S,
    rowMs: ((2 * weights) / device.flopPerS) * MS_PER_S,
  };
}

function loadMs(weights: number, form: StorageForm, device: ProfiledDevice): number {
  const readMs = ((weights * form.storedBytes) / device.linkBytesPerS) * MS_PER_S;
  return device.linkLatencyMs + Math.max(readMs, recoverMs(weights, form, device));
}

function recoverMs(
  weights: number,
  { storedBytes, slotBytes }: StorageForm,
  { recoverBytesPerS }: ProfiledDevice,
): number {
  return storedBytes < slotBytes ? ((weights * slotBytes) / recoverBytesPerS) * MS_PER_S : 0;
}

function sum<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}
