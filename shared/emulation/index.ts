export { STORAGE_FORMS, operatorMs } from './device-profile.js';
export type {
  DeviceBytes,
  DeviceProfile,
  DeviceTimes,
  EmulatedDevice,
  OperatorTime,
  ProfiledDevice,
  ProfiledModel,
  ProfiledNetwork,
  ProfiledRole,
} from './device-profile.js';
export { loadDeviceProfile, parseDeviceProfile } from './load-device-profile.js';
export { NetworkPace, networkPaceOf } from './network-pace.js';
export { messageBytes, type MessageProfile } from './message-bytes.js';
export { EmulatedNetworkCard } from './network-card.js';
export { denseLayerParameters, expertParameters, keyValueRowBytes, nodeTimes } from './node-times.js';
