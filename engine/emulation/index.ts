export { openNodeDevice, openRoleDevice, type NodeDevice } from './open-node-device.js';
