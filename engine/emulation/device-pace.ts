import type { DeviceBytes, DeviceTimes, OperatorTime } from './device-profile.js';

/** Time and memory of a device that another one stands for. */
export interface DevicePace {
  times: DeviceTimes;
  /** Null: memory counts as on the device that does the arithmetic, against that device's budget. */
  memory: {
    bytes: DeviceBytes;
    /** 0: no limit. */
    budgetBytes: number;
  } | null;
}

const NOTHING: OperatorTime = { overheadMs: 0, weightsMs: 0, rowMs: 0 };

/** Nothing takes any time: what happens on a virtual clock does not depend on how fast the arithmetic is. */
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
