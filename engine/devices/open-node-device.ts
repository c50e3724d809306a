import type { Device, DeviceOptions } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { loadDeviceProfile } from '../emulation/load-device-profile.js';
import { deviceOf, nodeTimes } from '../emulation/node-times.js';
import type { PlannedStorage, ProfiledRole } from '../emulation/device-profile.js';
import { slicedStorage } from '../emulation/sliced-storage.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { afterRefusal, chooseDevice, dependsOnCuda, type DeviceChoice, type DeviceWish } from './choose-device.js';
import type { Devices } from './devices.js';
import type { PaceRuntime } from '../emulation/exact-timer.js';
import { pacedDevice } from '../emulation/paced-device.js';

/** The parts of the environment that opening a device needs. */
export interface DeviceEnvironment {
  readonly devices: Devices;
  readonly runtime: PaceRuntime;
}

export interface NodeDevice {
  device: Device;
  options: DeviceOptions;
  /** The reason for the choice of this device. */
  reason: string;
}

/**
 * Opens a node's device and calls `fill` to put data on it. The device is this machine's, as wished; under emulation it is the profile's device
 * for the role, with the profile's memory unless the wish has a budget. If `fill` fails, the device is disposed of. Under `auto`, when a GPU
 * does not hold all the data, the processor is opened and `fill` is called again. Throws CONFIG_INVALID for the profile, DEVICE_UNAVAILABLE,
 * errors of `fill`; for a GPU that was asked for by name also DEVICE_DRIVER_TOO_OLD, DEVICE_ARCHITECTURE_UNSUPPORTED and DEVICE_OUT_OF_MEMORY.
 */
export async function fillRoleDevice<Filled>(
  environment: DeviceEnvironment,
  wish: DeviceWish,
  settings: EmulatedStorage | null,
  role: ProfiledRole,
  fill: (opened: NodeDevice) => Promise<Filled>,
): Promise<Filled> {
  const opened = settings === null ? openWished(environment, wish) : openEmulated(environment, wish, settings, role);
  try {
    return await fillOrDispose(opened, fill);
  } catch (thrown) {
    const other = afterRefusal(wish, opened, toOdmoeError(thrown), true);
    if (other === null) throw thrown;
    return fillOrDispose(openChosen(environment, other), fill);
  }
}

async function fillOrDispose<Filled>(
  opened: NodeDevice,
  fill: (opened: NodeDevice) => Promise<Filled>,
): Promise<Filled> {
  try {
    return await fill(opened);
  } catch (thrown) {
    opened.device.dispose();
    throw thrown;
  }
}

/** An emulated testbed, and the form in which its workers store experts. */
export interface EmulatedStorage {
  readonly profilePath: string;
  readonly expertStorage: PlannedStorage;
}

/** Under a sliced quality, workers store slices, whatever emulation.expert_storage says. */
function emulatedStorage({ emulation, main: { quality } }: NodeSettings): EmulatedStorage | null {
  if (emulation === null || quality.kind === 'exact') return emulation;
  return { ...emulation, expertStorage: slicedStorage(quality) };
}

/** Like fillRoleDevice, for a daemon; also logs the device and the reason for its choice. */
export function fillNodeDevice<Filled>(
  environment: DeviceEnvironment,
  nodeSettings: NodeSettings,
  log: Logger,
  fill: (opened: NodeDevice) => Promise<Filled>,
): Promise<Filled> {
  const { role, device } = nodeSettings;
  const { memoryBudgetBytes: budgetBytes, ...wish } = device;
  const emulated = emulatedStorage(nodeSettings);
  return fillRoleDevice(environment, { ...wish, budgetBytes }, emulated, role, (opened) => {
    const { backend, instructionSet, name, contextBytes } = opened.device.info();
    log.info('device chosen', {
      device: `${backend} ${instructionSet}`,
      reason: opened.reason,
      ...(name === '' ? {} : { name, contextBytes }),
    });
    return fill(opened);
  });
}

/**
 * A GPU that the settings name, looked at before a daemon waits for anything: without it the daemon never serves. One that can be used is not opened
 * yet. Throws as opening it does: DEVICE_UNAVAILABLE, DEVICE_DRIVER_TOO_OLD, DEVICE_ARCHITECTURE_UNSUPPORTED, DEVICE_OUT_OF_MEMORY.
 */
export function requireNamedGpu(devices: Devices, { device, emulation }: NodeSettings): void {
  if (device.backend !== 'cuda' || emulation !== null) return;
  const { memoryBudgetBytes: budgetBytes, ...wish } = device;
  const cuda = devices.cudaStatus();
  const { options } = chooseDevice({ ...wish, budgetBytes }, cuda, false);
  if (cuda.devices.some(({ index, usable }) => usable && index === options.device)) return;
  devices.open(options).dispose();
}

/** The device that does the arithmetic has no budget: memory is counted for the profiled device. */
function openEmulated(
  environment: DeviceEnvironment,
  wish: DeviceWish,
  settings: EmulatedStorage,
  role: ProfiledRole,
): NodeDevice {
  const profile = loadDeviceProfile(settings.profilePath);
  const emulated = nodeTimes(profile, role, settings.expertStorage);
  const budgetBytes = wish.budgetBytes === 0 ? deviceOf(profile, role).memoryBytes : wish.budgetBytes;
  const opened = openChosen(environment, chooseDevice({ ...wish, budgetBytes: 0 }, null, true));
  const pace = { times: emulated, memory: { bytes: emulated, budgetBytes } };
  return { ...opened, device: pacedDevice(opened.device, pace, environment.runtime) };
}

function openWished(environment: DeviceEnvironment, wish: DeviceWish): NodeDevice {
  const cuda = dependsOnCuda(wish, false) ? environment.devices.cudaStatus() : null;
  const choice = chooseDevice(wish, cuda, false);
  try {
    return openChosen(environment, choice);
  } catch (thrown) {
    const other = afterRefusal(wish, choice, toOdmoeError(thrown), false);
    if (other === null) throw thrown;
    return openChosen(environment, other);
  }
}

function openChosen({ devices }: DeviceEnvironment, { options, reason }: DeviceChoice): NodeDevice {
  return { device: devices.open(options), options, reason };
}
