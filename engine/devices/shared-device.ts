import type { Device, DeviceInfo } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ChooseResident } from '../loading/choose-resident.js';
import type { Devices } from './devices.js';

/**
 * One device with several users in a process, which share its budget. Each has a handle of its own; the device goes with the last one. So
 * their order of stopping does not matter.
 */
export class SharedDevice {
  private users = 0;

  constructor(private readonly device: Device) {}

  /** Another user's handle. `reservedBytes`: of the budget, told to be none of the user's until it has made its slots. */
  open(reservedBytes = 0): Device {
    const { device } = this;
    this.users += 1;
    let isOpen = true;
    let reserved = reservedBytes;
    return {
      info: (): DeviceInfo => {
        const info = device.info();
        return info.budgetBytes === 0 ? info : { ...info, budgetBytes: Math.max(1, info.budgetBytes - reserved) };
      },
      createModel: (shape) => device.createModel(shape),
      createExpertSlots: (...args) => {
        reserved = 0;
        return device.createExpertSlots(...args);
      },
      expertSlotBytes: (...args) => device.expertSlotBytes(...args),
      dispose: () => {
        if (!isOpen) return;
        isOpen = false;
        this.users -= 1;
        if (this.users === 0) device.dispose();
      },
    };
  }

  /** Chooses on the device itself, whichever user's handle is given. */
  choosing(choose: ChooseResident | null): ChooseResident | null {
    return choose === null ? null : (_, shipped) => choose(this.device, shipped);
  }

  /** Whatever is wished for, it is this device (open). Throws DEVICE_UNAVAILABLE once the last user has gone. */
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
