import { openDevice, type Device, type DeviceEmulation, type DeviceOptions } from '../../native/index.js';
import type { EmulationSettings, NodeSettings } from '../../shared/config/node-settings.js';
import { loadDeviceProfile, nodeTimes, type ProfiledRole } from '../../shared/emulation/index.js';

export interface NodeDevice {
  device: Device;
  /** What the device stands for; null: it is what it is. */
  emulation: DeviceEmulation | null;
}

/**
 * A node's device: this machine's, or under emulation the one that the profile has for the role, with the memory that the
 * profile gives it unless `options` has a budget. Throws CONFIG_INVALID for the profile, DEVICE_UNAVAILABLE.
 */
export function openRoleDevice(
  options: DeviceOptions,
  settings: EmulationSettings | null,
  role: ProfiledRole,
): NodeDevice {
  if (settings === null) return { device: openDevice(options), emulation: null };
  const profile = loadDeviceProfile(settings.profilePath);
  const emulation = nodeTimes(profile, role, settings.expertStorage);
  const budgetBytes = options.budgetBytes === 0 ? profile.devices[role].memoryBytes : options.budgetBytes;
  return { device: openDevice({ ...options, budgetBytes }, emulation), emulation };
}

/** As openRoleDevice, for a daemon. */
export function openNodeDevice({ role, device, emulation }: NodeSettings): NodeDevice {
  const { memoryBudgetBytes: budgetBytes, ...options } = device;
  return openRoleDevice({ ...options, budgetBytes }, emulation, role);
}
