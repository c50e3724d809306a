import type { DeviceBytes, DeviceTimes, OperatorTime } from './device-profile.js';

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

const NOTHING: OperatorTime = { overheadMs: 0, weightsMs: 0, rowMs: 0 };

/** All operations take no time: events on a virtual clock do not depend on the speed of the arithmetic. */
export const TIMELESS: DevicePace = {
  times: {
    attendLayers: [],
    layersBehind: [],
    router: NOTHING,
    expert: NOTHING,
    lmHead: NOTHING,
    loadMs: 0,
    exponentShare: 0.5,
    recoverMs: 0,
  },
  memory: null,
};
