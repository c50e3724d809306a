import type { DeviceBytes, DeviceTimes } from './device-profile.js';

/** Time and memory of an emulated device. */
export interface DevicePace {
  times: DeviceTimes;
  /** Null: memory counts as on the device that does the arithmetic, within that device's budget. */
  memory: {
    bytes: DeviceBytes;
    /** 0: no limit. */
    budgetBytes: number;
  } | null;
}
