import type { ExpertStorage } from '../config/node-settings.js';
import {
  STORAGE_FORMS,
  type DeviceProfile,
  type EmulatedDevice,
  type OperatorTime,
  type ProfiledDevice,
  type ProfiledModel,
  type ProfiledRole,
  type StorageForm,
} from './device-profile.js';

const MS_PER_S = 1000;
/** Hidden states, keys and values cross the wire and stand in caches as FP32. */
export const FLOAT_BYTES = 4;

/**
 * Times and bytes of one device of a profile for the profiled model. Pure.
 * An operator reads its weights at weightBytesPerS while it multiplies rows by them at flopPerS (2 operations a parameter and row).
 * A worker's experts have the bytes of the storage form, every other device's those of its own weights. A load takes the
 * link's time, or the time of recovering plain values where that is longer (OD-MoE 3.1; ZipMoE 3.2 for packed forms).
 * reservedBytes count with what a device takes first: slots share them on a worker, and outerBytes hold them elsewhere.
 */
export function nodeTimes(profile: DeviceProfile, role: ProfiledRole, expertStorage: ExpertStorage): EmulatedDevice {
  const { model } = profile;
  const device = profile.devices[role];
  const dense = denseLayerParameters(model);
  const expert = expertParameters(model);
  const head = model.vocabSize * model.hiddenSize;
  const form = STORAGE_FORMS[expertStorage];
  const expertWeightBytes = role === 'worker' ? form.slotBytes : device.weightBytes;
  const outerBytes = Math.round((2 * head + model.hiddenSize) * device.weightBytes);
  const expertBytes = Math.round(expert * expertWeightBytes);
  return {
    denseLayer: operatorTime(dense, device.weightBytes, device.denseOverheadMs, device),
    expert: operatorTime(expert, expertWeightBytes, device.expertOverheadMs, device),
    lmHead: operatorTime(head, device.weightBytes, device.lmHeadOverheadMs, device),
    loadMs: loadMs(expert, form, device),
    exponentShare: form.exponentBytes / form.storedBytes,
    recoverMs: recoverMs(expert, form, device),
    outerBytes: role === 'worker' ? outerBytes : outerBytes + device.reservedBytes,
    denseLayerBytes: Math.round(dense * device.weightBytes),
    expertBytes,
    slotBytes: expertBytes,
    slotSharedBytes: role === 'worker' ? device.reservedBytes : 0,
    exponentEntryBytes: Math.round(expert * form.exponentBytes),
    signMantissaEntryBytes: Math.round(expert * (form.storedBytes - form.exponentBytes)),
    keyValueRowBytes: keyValueRowBytes(model),
  };
}

/** Keys and values of one position in one layer, FP32 (8 KB for Mixtral-8x7B, OD-MoE 4.2). */
export function keyValueRowBytes(model: Pick<ProfiledModel, 'keyValueHeads' | 'headDim'>): number {
  return 2 * model.keyValueHeads * model.headDim * FLOAT_BYTES;
}

/** Gate, up and down matrices. */
export function expertParameters({ hiddenSize, intermediateSize }: ProfiledModel): number {
  return 3 * hiddenSize * intermediateSize;
}

/** Query, key, value and output projections and the router; norms are too small to count. */
export function denseLayerParameters(model: ProfiledModel): number {
  const { hiddenSize, heads, keyValueHeads, headDim, experts } = model;
  return hiddenSize * (2 * heads * headDim + 2 * keyValueHeads * headDim + experts);
}

function operatorTime(
  parameters: number,
  weightBytes: number,
  overheadMs: number,
  device: ProfiledDevice,
): OperatorTime {
  return {
    overheadMs,
    weightsMs: ((parameters * weightBytes) / device.weightBytesPerS) * MS_PER_S,
    rowMs: ((2 * parameters) / device.flopPerS) * MS_PER_S,
  };
}

function loadMs(parameters: number, form: StorageForm, device: ProfiledDevice): number {
  const readMs = ((parameters * form.storedBytes) / device.linkBytesPerS) * MS_PER_S;
  return device.linkLatencyMs + Math.max(readMs, recoverMs(parameters, form, device));
}

function recoverMs(
  parameters: number,
  { storedBytes, slotBytes }: StorageForm,
  { recoverBytesPerS }: ProfiledDevice,
): number {
  return storedBytes < slotBytes ? ((parameters * slotBytes) / recoverBytesPerS) * MS_PER_S : 0;
}
