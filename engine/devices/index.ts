export { afterRefusal, chooseDevice, dependsOnCuda, type DeviceChoice, type DeviceWish } from './choose-device.js';
export { fillNodeDevice, fillRoleDevice, type NodeDevice } from './open-node-device.js';
