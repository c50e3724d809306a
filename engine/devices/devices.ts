import { cudaStatus, openDevice, type CudaStatus, type Device, type DeviceRequest } from '../../native/index.js';

/** Where a node's device comes from: this machine, or in a simulated cluster devices that stand for others. */
export interface Devices {
  /** Throws DEVICE_UNAVAILABLE and its like, as native's openDevice. */
  open(request: DeviceRequest): Device;
  /** What there is of CUDA. */
  cudaStatus(): CudaStatus;
}

/** The devices of this machine. */
export const NATIVE_DEVICES: Devices = { open: (request) => openDevice(request), cudaStatus };
