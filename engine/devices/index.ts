export { afterRefusal, chooseDevice, dependsOnCuda, type DeviceChoice, type DeviceWish } from './choose-device.js';
export { TIMELESS, type DevicePace } from './device-pace.js';
export { NATIVE_DEVICES, type Devices } from './devices.js';
export { fillNodeDevice, fillRoleDevice, type DeviceEnvironment, type NodeDevice } from './open-node-device.js';
export { pacedDevice } from './paced-device.js';
