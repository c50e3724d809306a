/** The addon's handles behind checks: what goes in is checked, what comes out as an error is an OdmoeError. */
import { OdmoeError } from '../shared/errors/index.js';
import type { DenseRole, ExpertSource, ModelShape, TensorSource, WeightFormat } from '../shared/model/tensor-source.js';
import type {
  Device,
  DeviceEmulation,
  DeviceInfo,
  DeviceOptions,
  ExpertBenchOptions,
  ExpertOrder,
  ExpertShape,
  ExpertSlotBytes,
  ExpertSlots,
  ExpertSpeed,
  GateChoice,
  LoadOutcome,
  LoadRequest,
  LoaderOptions,
  Model,
  Pass,
  ResidentWeights,
  Sequence,
} from './addon.d.ts';
import { awaiting, calling } from './addon-errors.js';
import { addon } from './addon-loader.js';
import {
  checkBytes,
  checkEmulation,
  checkExpertShape,
  checkExpertSource,
  checkFloats,
  checkFormat,
  checkInt32s,
  checkInteger,
  checkLoaderOptions,
  checkLoadRequest,
  checkModelShape,
  checkOrder,
  checkRole,
  checkTensorSource,
} from './argument-checks.js';

const LARGEST_THREADS = 1024;
const LARGEST_PASS_ROWS = 65536;
/** Rows that an expert takes at a time. */
const LARGEST_EXPERT_ROWS = 128;
const LARGEST_SLOTS = 65536;

class CheckedDevice implements Device {
  constructor(readonly handle: Device) {}

  info(): DeviceInfo {
    return calling(() => this.handle.info());
  }

  dispose(): void {
    this.handle.dispose();
  }
}

class CheckedSequence implements Sequence {
  constructor(readonly handle: Sequence) {}

  readKeyValues(layer: number, position: number, rows: number): { keys: Uint8Array; values: Uint8Array } {
    checkInteger('layer', layer, 0);
    checkInteger('position', position, 0);
    checkInteger('rows', rows, 0);
    return calling(() => this.handle.readKeyValues(layer, position, rows));
  }

  writeKeyValues(layer: number, position: number, rows: number, keys: Uint8Array, values: Uint8Array): void {
    checkInteger('layer', layer, 0);
    checkInteger('position', position, 0);
    checkInteger('rows', rows, 0);
    checkBytes('keys', keys);
    checkBytes('values', values);
    calling(() => this.handle.writeKeyValues(layer, position, rows, keys, values));
  }

  truncate(length: number): void {
    checkInteger('length', length, 0);
    calling(() => this.handle.truncate(length));
  }

  get length(): number {
    return calling(() => this.handle.length);
  }

  dispose(): void {
    this.handle.dispose();
  }
}

class CheckedPass implements Pass {
  constructor(private readonly handle: Pass) {}

  async begin(
    sequences: Sequence[],
    rowSequence: Int32Array,
    positions: Int32Array,
    tokenIds: Int32Array,
  ): Promise<void> {
    checkInt32s('rowSequence', rowSequence);
    checkInt32s('positions', positions);
    checkInt32s('tokenIds', tokenIds);
    const handles = sequences.map((sequence) => {
      if (sequence instanceof CheckedSequence) return sequence.handle;
      throw new OdmoeError('INTERNAL', 'native call: a sequence that no model created');
    });
    await awaiting(() => this.handle.begin(handles, rowSequence, positions, tokenIds));
  }

  async attend(layer: number, hidden: Uint8Array): Promise<GateChoice> {
    checkInteger('layer', layer, 0);
    checkBytes('hidden', hidden);
    return await awaiting(() => this.handle.attend(layer, hidden));
  }

  async combine(layer: number, outputs: Uint8Array, weights: Float32Array): Promise<void> {
    checkInteger('layer', layer, 0);
    checkBytes('outputs', outputs);
    checkFloats('weights', weights);
    await awaiting(() => this.handle.combine(layer, outputs, weights));
  }

  async forward(onGate: ((layer: number, choice: GateChoice) => void) | null): Promise<void> {
    await awaiting(() => this.handle.forward(onGate));
  }

  async logits(rows: Int32Array): Promise<Float32Array> {
    checkInt32s('rows', rows);
    return await awaiting(() => this.handle.logits(rows));
  }

  cancel(): void {
    calling(() => {
      this.handle.cancel();
    });
  }

  dispose(): void {
    this.handle.dispose();
  }
}

class CheckedModel implements Model {
  readonly shape: ModelShape;

  constructor(private readonly handle: Model) {
    this.shape = handle.shape;
  }

  async loadDense(role: DenseRole, layer: number, source: TensorSource, format: WeightFormat): Promise<void> {
    checkRole(role);
    checkInteger('layer', layer, 0);
    checkTensorSource(source);
    checkFormat(format);
    await awaiting(() => this.handle.loadDense(role, layer, source, format));
  }

  async loadResidentExpert(layer: number, expert: number, source: ExpertSource, format: WeightFormat): Promise<void> {
    checkInteger('layer', layer, 0);
    checkInteger('expert', expert, 0);
    checkExpertSource(source);
    checkFormat(format);
    await awaiting(() => this.handle.loadResidentExpert(layer, expert, source, format));
  }

  residentWeights(): ResidentWeights {
    return calling(() => this.handle.residentWeights());
  }

  createSequence(): Sequence {
    return new CheckedSequence(calling(() => this.handle.createSequence()));
  }

  createPass(maxRows: number): Pass {
    checkInteger('maxRows', maxRows, 1, LARGEST_PASS_ROWS);
    return new CheckedPass(calling(() => this.handle.createPass(maxRows)));
  }

  dispose(): void {
    this.handle.dispose();
  }
}

class CheckedExpertSlots implements ExpertSlots {
  readonly count: number;
  readonly slotBytes: number;

  constructor(private readonly handle: ExpertSlots) {
    this.count = handle.count;
    this.slotBytes = handle.slotBytes;
  }

  get directIoRefused(): boolean {
    return calling(() => this.handle.directIoRefused);
  }

  async load(slot: number, source: ExpertSource, request: LoadRequest): Promise<LoadOutcome> {
    checkInteger('slot', slot, 0);
    checkExpertSource(source);
    checkLoadRequest(request);
    return await awaiting(() => this.handle.load(slot, source, request));
  }

  cancel(slot: number): void {
    checkInteger('slot', slot, 0);
    calling(() => {
      this.handle.cancel(slot);
    });
  }

  prioritize(slot: number): void {
    checkInteger('slot', slot, 0);
    calling(() => {
      this.handle.prioritize(slot);
    });
  }

  reorder(slot: number, order: ExpertOrder | null): void {
    checkInteger('slot', slot, 0);
    checkOrder(order);
    calling(() => {
      this.handle.reorder(slot, order);
    });
  }

  async execute(slot: number, rows: number, hidden: Uint8Array, output: Uint8Array): Promise<{ executeMs: number }> {
    checkInteger('slot', slot, 0);
    checkInteger('rows', rows, 1);
    checkBytes('hidden', hidden);
    checkBytes('output', output);
    return await awaiting(() => this.handle.execute(slot, rows, hidden, output));
  }

  dispose(): void {
    this.handle.dispose();
  }
}

function handleOf(device: Device): Device {
  if (device instanceof CheckedDevice) return device.handle;
  throw new OdmoeError('INTERNAL', 'native call: a device that openDevice did not open');
}

/** What only CUDA has may be left out: the first device, and the one arithmetic. */
export type DeviceRequest = Omit<DeviceOptions, 'device' | 'arithmetic'> &
  Partial<Pick<DeviceOptions, 'device' | 'arithmetic'>>;

/**
 * `emulation`: null: the device is what it is. Throws DEVICE_UNAVAILABLE when the native library, the instruction set or the device
 * cannot be used; of a CUDA device also DEVICE_DRIVER_TOO_OLD, DEVICE_ARCHITECTURE_UNSUPPORTED, and DEVICE_OUT_OF_MEMORY when the
 * budget does not hold the driver's context.
 */
export function openDevice(request: DeviceRequest, emulation: DeviceEmulation | null = null): Device {
  const options: DeviceOptions = { device: 0, arithmetic: 'exact', ...request };
  checkInteger('threads', options.threads, 0, LARGEST_THREADS);
  checkInteger('budgetBytes', options.budgetBytes, 0, Number.MAX_SAFE_INTEGER);
  checkInteger('device', options.device, 0);
  if (emulation !== null) checkEmulation(emulation);
  return new CheckedDevice(calling(() => addon().openDevice(options, emulation)));
}

/** An empty model: weights are loaded one by one. Throws MODEL_UNSUPPORTED. */
export function createModel(device: Device, shape: ModelShape): Model {
  checkModelShape(shape);
  return new CheckedModel(calling(() => addon().createModel(handleOf(device), shape)));
}

/** Takes all memory at once. Throws DEVICE_OUT_OF_MEMORY. */
export function createExpertSlots(
  device: Device,
  shape: ExpertShape,
  count: number,
  maxRows: number,
  loader: LoaderOptions,
): ExpertSlots {
  checkExpertShape(shape);
  checkInteger('count', count, 1, LARGEST_SLOTS);
  checkInteger('maxRows', maxRows, 1, LARGEST_PASS_ROWS);
  checkLoaderOptions(loader);
  return new CheckedExpertSlots(
    calling(() => addon().createExpertSlots(handleOf(device), shape, count, maxRows, loader)),
  );
}

/** Memory read bandwidth and FP32 fused-multiply-add peak of this machine, each measured for `milliseconds`. */
export async function measureMachine(
  device: Device,
  milliseconds: number,
): Promise<{ readBytesPerS: number; fmaFlopPerS: number }> {
  checkInteger('milliseconds', milliseconds, 1);
  return await awaiting(() => addon().measureMachine(handleOf(device), milliseconds));
}

/** How fast random experts execute from BF16 and from fixed4 weights, beside the read bandwidth of the same rounds. */
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

/** Bytes that this device takes for one slot, for what a pool's slots share, and for one entry of each kind. */
export function expertSlotBytes(
  device: Device,
  shape: ExpertShape,
  maxRows: number,
  loader: LoaderOptions,
): ExpertSlotBytes {
  checkExpertShape(shape);
  checkInteger('maxRows', maxRows, 1, LARGEST_PASS_ROWS);
  checkLoaderOptions(loader);
  return calling(() => addon().expertSlotBytes(handleOf(device), shape, maxRows, loader));
}
