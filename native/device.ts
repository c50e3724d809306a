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
  LoaderOptions,
  Model,
  OperatorSpeed,
} from './addon.d.ts';
import { awaiting, calling } from './addon-errors.js';
import { addon } from './addon-loader.js';
import { checkExpertShape, checkInt32s, checkInteger, checkLoaderOptions } from './argument-checks.js';
import { CheckedExpertSlots, CheckedModel, LARGEST_PASS_ROWS } from './handles.js';
import { flatLoaderOptions, slotBytesOf } from './part-fields.js';
import { checkModelShape } from './model-shape-checks.js';

const LARGEST_THREADS = 1024;
/** Most rows that an expert computes at a time. */
const LARGEST_EXPERT_ROWS = 128;
const LARGEST_SLOTS = 65536;

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

class CheckedDevice implements Device {
  constructor(readonly handle: DeviceHandle) {}

  info(): DeviceInfo {
    return calling(() => this.handle.info());
  }

  createModel(shape: ModelShape): Model {
    checkModelShape(shape);
    return new CheckedModel(
      structuredClone(shape),
      calling(() => addon().createModel(this.handle, shape)),
    );
  }

  createExpertSlots(shape: ExpertShape, count: number, maxRows: number, loader: LoaderOptions): ExpertSlots {
    checkSlots(shape, maxRows, loader);
    checkInteger('count', count, 1, LARGEST_SLOTS);
    const options = flatLoaderOptions(loader);
    return new CheckedExpertSlots(
      calling(() => addon().createExpertSlots(this.handle, shape, count, maxRows, options)),
    );
  }

  expertSlotBytes(shape: ExpertShape, maxRows: number, loader: LoaderOptions): ExpertSlotBytes {
    checkSlots(shape, maxRows, loader);
    return slotBytesOf(calling(() => addon().expertSlotBytes(this.handle, shape, maxRows, flatLoaderOptions(loader))));
  }

  dispose(): void {
    this.handle.dispose();
  }
}

function checkSlots(shape: ExpertShape, maxRows: number, loader: LoaderOptions): void {
  checkExpertShape(shape);
  checkInteger('maxRows', maxRows, 1, LARGEST_PASS_ROWS);
  checkLoaderOptions(loader);
}

function handleOf(device: Device): DeviceHandle {
  if (device instanceof CheckedDevice) return device.handle;
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
  checkInteger('threads', options.threads, 0, LARGEST_THREADS);
  checkInteger('budgetBytes', options.budgetBytes, 0, Number.MAX_SAFE_INTEGER);
  checkInteger('device', options.device, 0);
  return new CheckedDevice(calling(() => addon().openDevice(options)));
}

/** Measures the memory read bandwidth and the FP32 fused-multiply-add peak of this machine, for `milliseconds` each. */
export async function measureMachine(
  device: Device,
  milliseconds: number,
): Promise<{ readBytesPerS: number; fmaFlopPerS: number }> {
  checkInteger('milliseconds', milliseconds, 1);
  return await awaiting(() => addon().measureMachine(handleOf(device), milliseconds));
}

/** Measures how fast random experts execute from BF16 and from fixed4 weights, and the read bandwidth in the same rounds. */
export async function measureExperts(device: Device, options: ExpertBenchOptions): Promise<ExpertSpeed[]> {
  checkInteger('hiddenSize', options.hiddenSize, 1);
  checkInteger('intermediateSize', options.intermediateSize, 1);
  checkInteger('experts', options.experts, 1);
  checkInt32s('tokens', options.tokens);
  options.tokens.forEach((tokens) => {
    checkInteger('tokens', tokens, 1, LARGEST_EXPERT_ROWS);
  });
  checkInteger('milliseconds', options.milliseconds, 1);
  return await awaiting(() => addon().measureExperts(handleOf(device), options));
}

/** Measures each operator of a CPU device against the best speeds of the machine, for `milliseconds` each. */
export async function measureOperators(device: Device, milliseconds: number): Promise<OperatorSpeed[]> {
  checkInteger('milliseconds', milliseconds, 1);
  return await awaiting(() => addon().measureOperators(handleOf(device), milliseconds));
}
