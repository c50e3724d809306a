import { pacedDevice } from '../../engine/emulation/paced-device.js';
import type { DevicePace } from '../../engine/emulation/device-pace.js';
import { realDevices } from '../../engine/environment/node-environment.js';
import { slotSizes } from '../../engine/planning/slot-sizes.js';
import { FROM_STORAGE, PLAIN_LOADER, waitUntil, type Device, type ExpertSlots } from '../../native/index.js';
import { operatorMs } from '../../engine/emulation/device-profile.js';
import { expertRowSize } from '../../shared/model/model-shape.js';
import type { ExpertSource, ModelSource } from '../../shared/model/tensor-source.js';

export type EmulatedOperation = 'wait' | 'execute' | 'queued executes' | 'load';

/** The lateness of operations of one kind. Shares: processor time of the process divided by their duration. */
export interface EmulationLateness {
  operation: EmulatedOperation;
  count: number;
  takenMs: number;
  p50Ms: number;
  p99Ms: number;
  worstMs: number;
  processorShare: number;
}

const WAIT_MS = 5;
const EXECUTE_MS = { overheadMs: 1, weightsMs: 4, rowMs: 0.1 };
const LOAD_MS = 20;
/** Executes that are requested together; no JavaScript runs between them. */
const QUEUED_EXECUTES = 8;
const NOTHING = { overheadMs: 0, weightsMs: 0, rowMs: 0 };
const PACE: DevicePace = {
  times: {
    attendLayers: [],
    layersBehind: [],
    router: NOTHING,
    expert: EXECUTE_MS,
    lmHead: NOTHING,
    loadMs: LOAD_MS,
    exponentShare: 0.5,
    recoverMs: 0,
  },
  memory: null,
};
const NS_PER_MS = 1e6;
const US_PER_MS = 1e3;

/** Measures waits, executes and loads, `count` of each, one after the other, on experts of the model. */
export async function measureEmulation(source: ModelSource, count: number): Promise<EmulationLateness[]> {
  const { devices, runtime } = realDevices();
  const processor = devices.open({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
  const device = pacedDevice(processor, PACE, runtime);
  const slots = makeSlots(device, source);
  try {
    const length = expertRowSize(source.shape);
    const hidden = new Uint8Array(Float32Array.from({ length }, (_, i) => Math.sin(i)).buffer);
    const execute = async (): Promise<unknown> => slots.execute(0, 1, hidden, new Uint8Array(hidden.length));
    const load = async (index: number): Promise<unknown> =>
      slots.load(0, slots.register(expertOf(source, index)), FROM_STORAGE);
    const executeMs = operatorMs(EXECUTE_MS, 1);
    const lateness = [
      await latenessOf('wait', count, WAIT_MS, async () => waitUntil(nowMs() + WAIT_MS)),
      await latenessOf('load', count, LOAD_MS, load),
    ];
    const queued = Array.from({ length: QUEUED_EXECUTES }, (_, i) => i);
    lateness.push(
      await latenessOf('execute', count, executeMs, execute),
      await latenessOf('queued executes', count, QUEUED_EXECUTES * executeMs, async () =>
        Promise.all(queued.map(execute)),
      ),
    );
    return lateness;
  } finally {
    slots.dispose();
    device.dispose();
  }
}

function makeSlots(device: Device, source: ModelSource): ExpertSlots {
  const { decompressionThreads, directIo, storageBytesPerS } = PLAIN_LOADER;
  const { shape, loader } = slotSizes(device, source, { decompressionThreads, directIo, storageBytesPerS });
  return device.createExpertSlots(shape, 1, 1, { ...loader, decompressionThreads: 1 });
}

function expertOf(source: ModelSource, index: number): ExpertSource {
  const { expertLayers, experts } = source.shape;
  return source.expert(Math.floor(index / experts) % expertLayers, index % experts);
}

async function latenessOf(
  operation: EmulatedOperation,
  count: number,
  wantedMs: number,
  operate: (index: number) => Promise<unknown>,
): Promise<EmulationLateness> {
  const lateMs: number[] = [];
  const usageBefore = process.cpuUsage();
  const beganMs = nowMs();
  for (let index = 0; index < count; index++) {
    const startMs = nowMs();
    await operate(index);
    lateMs.push(nowMs() - startMs - wantedMs);
  }
  const takenMs = nowMs() - beganMs;
  const { user, system } = process.cpuUsage(usageBefore);
  lateMs.sort((left, right) => left - right);
  return {
    operation,
    count,
    takenMs,
    p50Ms: quantile(lateMs, 0.5),
    p99Ms: quantile(lateMs, 0.99),
    worstMs: quantile(lateMs, 1),
    processorShare: (user + system) / US_PER_MS / takenMs,
  };
}

/** The quantile of sorted values. */
function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}

function nowMs(): number {
  return Number(process.hrtime.bigint()) / NS_PER_MS;
}
