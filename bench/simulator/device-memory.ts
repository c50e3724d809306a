import type { DeviceProfile, EmulatedDevice } from '../../shared/emulation/device-profile.js';
import type { ClusterTimes } from './simulation-setting.js';

/** Device memory of one machine and what its device has. */
export interface DeviceMemory {
  usedBytes: number;
  memoryBytes: number;
}

export interface ClusterMemory {
  main: DeviceMemory;
  shadow: DeviceMemory | null;
  worker: DeviceMemory;
  workers: number;
  totalBytes: number;
}

/** Weights, keys and values of `positions`, slots, and what a device keeps in reserve. */
export function clusterMemory(
  profile: DeviceProfile,
  times: ClusterTimes,
  use: { workers: number; slots: number; positions: number; shadow: boolean },
): ClusterMemory {
  const { model, devices } = profile;
  const main = dense(times.main, model.layers, use.positions);
  const shadow =
    dense(times.shadow, model.layers, use.positions) + model.layers * model.experts * times.shadow.expertBytes;
  const worker = times.worker.slotSharedBytes + use.slots * times.worker.slotBytes;
  return {
    main: { usedBytes: main, memoryBytes: devices.main.memoryBytes },
    shadow: use.shadow ? { usedBytes: shadow, memoryBytes: devices.shadow.memoryBytes } : null,
    worker: { usedBytes: worker, memoryBytes: devices.worker.memoryBytes },
    workers: use.workers,
    totalBytes: main + (use.shadow ? shadow : 0) + use.workers * worker,
  };
}

/** Everything but experts. */
function dense(device: EmulatedDevice, layers: number, positions: number): number {
  return device.outerBytes + layers * (device.denseLayerBytes + positions * device.keyValueRowBytes);
}
