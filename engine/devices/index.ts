export { afterRefusal, chooseDevice, dependsOnCuda, type DeviceChoice, type DeviceWish } from './choose-device.js';
export { TIMELESS, type DeviceBytes, type DevicePace, type DeviceTimes } from './device-pace.js';
export { NATIVE_DEVICES, type Devices } from './devices.js';
export { fillNodeDevice, fillRoleDevice, type NodeDevice } from './open-node-device.js';
export { pacedDevice } from './paced-device.js';
