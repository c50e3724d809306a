import { cudaStatus, openDevice, type CudaStatus, type Device, type DeviceRequest } from '../../native/index.js';

/** The source of a node's device: this machine, or the simulated devices of a simulated cluster. */
export interface Devices {
  /** Throws the errors of native's openDevice, such as DEVICE_UNAVAILABLE. */
  open(request: DeviceRequest): Device;
  /** The CUDA devices and driver of the machine. */
  cudaStatus(): CudaStatus;
}

/** The devices of this machine. */
export const NATIVE_DEVICES: Devices = { open: (request) => openDevice(request), cudaStatus };
