import { type Device, type DeviceInfo, wrapHandle } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ChooseWeightForm } from '../loading/choose-weight-form.js';
import type { Devices } from './devices.js';

/**
 * One device with several users in a process, which share its budget. Each user has a separate handle; the device closes with the last handle.
 * So the users may stop in any order.
 */
export class SharedDevice {
  private users = 0;

  constructor(private readonly device: Device) {}

  /**
   * Opens a handle for another user. `reservedBytes`: bytes of the budget that the handle reports as not available to this user until it has
   * made its slots.
   */
  open(reservedBytes = 0): Device {
    const { device } = this;
    this.users += 1;
    let isOpen = true;
    let reserved = reservedBytes;
    return wrapHandle(device, {
      info: (): DeviceInfo => {
        const info = device.info();
        return info.budgetBytes === 0 ? info : { ...info, budgetBytes: Math.max(1, info.budgetBytes - reserved) };
      },
      createExpertSlots: (...args) => {
        reserved = 0;
        return device.createExpertSlots(...args);
      },
      dispose: () => {
        if (!isOpen) return;
        isOpen = false;
        this.users -= 1;
        if (this.users === 0) device.dispose();
      },
    });
  }

  /** Chooses on the device itself, for the handle of any user. */
  choosing(choose: ChooseWeightForm | null): ChooseWeightForm | null {
    return choose === null ? null : (_, shipped) => choose(this.device, shipped);
  }

  /** Opens this device for any request (open). Throws DEVICE_UNAVAILABLE after the last user has closed its handle. */
  asDevices({ cudaStatus }: Pick<Devices, 'cudaStatus'>, reservedBytes: number): Devices {
    return {
      cudaStatus,
      open: () => {
        if (this.users > 0) return this.open(reservedBytes);
        throw new OdmoeError('DEVICE_UNAVAILABLE', 'the device that was to be shared has been closed');
      },
    };
  }
}
