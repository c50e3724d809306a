import type { CudaStatus, DeviceInfo, DeviceOptions } from '../../native/index.js';

export interface MemoryOfDevice {
  readonly info: DeviceInfo;
  readonly options: Pick<DeviceOptions, 'backend' | 'device'>;
  readonly cudaStatus: () => CudaStatus;
  readonly freeHostMemoryBytes: () => number;
}

/** Bytes that a device has left for more weights: the rest of its budget; without a budget those of a GPU, or what is free on the host. */
export function deviceMemoryLeft({ info, options, cudaStatus, freeHostMemoryBytes }: MemoryOfDevice): number {
  if (info.budgetBytes > 0) return info.budgetBytes - info.usedBytes;
  if (options.backend === 'cpu') return freeHostMemoryBytes();
  const gpu = cudaStatus().devices.find(({ index }) => index === options.device);
  return (gpu?.memoryBytes ?? 0) - info.usedBytes;
}
