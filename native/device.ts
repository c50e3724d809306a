import type { ModelShape } from '../shared/model/model-shape.js';
import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import type {
  DeviceHandle,
  DeviceInfo,
  DeviceOptions,
  ExpertBenchOptions,
  ExpertShape,
  ExpertSlotBytes,
  ExpertSlots,
  ExpertSpeed,
  FlatExpertSlots,
  LoaderOptions,
  Model,
  OperatorSpeed,
} from './addon.d.ts';
import { addon } from './addon-loader.js';
import { fromAddon } from './addon-errors.js';
import { checkModelShape } from './model-shape-checks.js';
import { flatLoaderOptions, flatLoadRequest, loadOutcomeOf, slotBytesOf } from './part-fields.js';

/** A device, and the objects that can be created on it. Besides the addon's devices there are some that imitate other devices (engine/devices). */
export interface Device {
  info(): DeviceInfo;
  /** An empty model: weights are loaded one by one. Throws MODEL_UNSUPPORTED. */
  createModel(shape: ModelShape): Model;
  /** Takes all memory at once. `maxRows`: most rows of one execute. Throws DEVICE_OUT_OF_MEMORY. */
  createExpertSlots(shape: ExpertShape, count: number, maxRows: number, loader: LoaderOptions): ExpertSlots;
  /** Bytes that this device needs for one slot, for the memory that all slots of a pool share, and for one entry of each kind. */
  expertSlotBytes(shape: ExpertShape, maxRows: number, loader: LoaderOptions): ExpertSlotBytes;
  dispose(): void;
}

class NativeDevice implements Device {
  constructor(readonly handle: DeviceHandle) {}

  info(): DeviceInfo {
    return this.handle.info();
  }

  createModel(shape: ModelShape): Model {
    readArgument(shape, checkModelShape);
    return Object.assign(addon().createModel(this.handle, shape), { shape: structuredClone(shape) });
  }

  createExpertSlots(shape: ExpertShape, count: number, maxRows: number, loader: LoaderOptions): ExpertSlots {
    const options = readArgument(loader, flatLoaderOptions);
    return slotsWithParts(addon().createExpertSlots(this.handle, shape, count, maxRows, options));
  }

  expertSlotBytes(shape: ExpertShape, maxRows: number, loader: LoaderOptions): ExpertSlotBytes {
    return slotBytesOf(addon().expertSlotBytes(this.handle, shape, maxRows, readArgument(loader, flatLoaderOptions)));
  }

  dispose(): void {
    this.handle.dispose();
  }
}

/** @throws INTERNAL for an object that cannot be read, because it lacks fields or its getters throw */
function readArgument<Argument, Result>(argument: Argument, read: (argument: Argument) => Result): Result {
  try {
    return read(argument);
  } catch (thrown) {
    throw fromAddon(thrown);
  }
}

/** The same slots; only `load` has an object for each part. */
function slotsWithParts(slots: FlatExpertSlots): ExpertSlots {
  const flatLoad = slots.load.bind(slots);
  const load: ExpertSlots['load'] = async (slot, expert, request) =>
    loadOutcomeOf(await flatLoad(slot, expert, readArgument(request, flatLoadRequest)));
  return Object.defineProperty(slots as Omit<FlatExpertSlots, 'load'> as ExpertSlots, 'load', { value: load });
}

function handleOf(device: Device): DeviceHandle {
  if (device instanceof NativeDevice) return device.handle;
  throw new OdmoeError('INTERNAL', 'native call: a device that openDevice did not open');
}

/** Options for CUDA alone may be left out; the defaults are the first device and the exact arithmetic. */
export type DeviceRequest = Omit<DeviceOptions, 'device' | 'arithmetic'> &
  Partial<Pick<DeviceOptions, 'device' | 'arithmetic'>>;

/**
 * Throws DEVICE_UNAVAILABLE when the native library, the instruction set or the device
 * cannot be used; for a CUDA device also DEVICE_DRIVER_TOO_OLD, DEVICE_ARCHITECTURE_UNSUPPORTED, and DEVICE_OUT_OF_MEMORY when the budget
 * does not hold the driver's context.
 */
export function openDevice(request: DeviceRequest): Device {
  const options: DeviceOptions = { device: 0, arithmetic: 'exact', ...request };
  return new NativeDevice(addon().openDevice(options));
}

/** Measures the memory read bandwidth and the FP32 fused-multiply-add peak of this machine, for `milliseconds` each. */
export async function measureMachine(
  device: Device,
  milliseconds: number,
): Promise<{ readBytesPerS: number; fmaFlopPerS: number }> {
  return await addon().measureMachine(handleOf(device), milliseconds);
}

/** Measures how fast random experts execute from weights of each form, and the read bandwidth in the same rounds. */
export async function measureExperts(device: Device, options: ExpertBenchOptions): Promise<ExpertSpeed[]> {
  return await addon().measureExperts(handleOf(device), options);
}

/** Measures each operator of a CPU device against the best speeds of the machine, for `milliseconds` each. */
export async function measureOperators(device: Device, milliseconds: number): Promise<OperatorSpeed[]> {
  return await addon().measureOperators(handleOf(device), milliseconds);
}
