/** Which CUDA devices this machine has, and why CUDA is not used where it is not. */
import { cudaStatus, type CudaDevice, type CudaStatus } from '../../native/index.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { ok, warn, type Check } from './check.js';

/** CUDA's name for a driver that is in order and has no device; with any other the driver itself has failed. */
const NO_DEVICE = 'cudaErrorNoDevice';

/** null, with the reason in the check of the native library, where that cannot be loaded. */
export function lookForCuda(): CudaStatus | null {
  try {
    return cudaStatus();
  } catch (thrown) {
    if (toOdmoeError(thrown).code === 'DEVICE_UNAVAILABLE') return null;
    throw thrown;
  }
}

/** A machine without a GPU, or a build without CUDA, is as it should be; a GPU that cannot be used may not be. */
export function checkCuda(status: CudaStatus): Check {
  const name = 'CUDA';
  const { built, library, devices, usable, driverVersion, runtimeVersion } = status;
  const reason = status.reason ?? 'the library does not say why';
  if (!built) return ok(name, `not used: ${reason}`);
  const versions = `${library}, driver ${driverVersion ?? 'none'}, runtime ${runtimeVersion ?? 'unknown'}`;
  const found = [versions, ...devices.map(deviceLine)].join('\n');
  if (usable) return ok(name, found);
  if (isDriverTooOld(status)) {
    return warn(
      name,
      `${found}\n${reason}`,
      'install a newer NVIDIA driver, or build odmoe with an older CUDA toolkit',
    );
  }
  if (devices.length > 0) {
    const builtFor = status.architectures.join(', ');
    return warn(
      name,
      `${found}\nbuilt for ${builtFor}`,
      'build odmoe on this machine with a CUDA toolkit that knows the device (`npm run build`); until then the processor is used',
    );
  }
  if (runtimeVersion === null) return warn(name, `${library}: ${reason}`, 'run `npm run build` again');
  if (driverVersion !== null && !reason.includes(NO_DEVICE)) {
    return warn(
      name,
      `${versions}\n${reason}`,
      'see whether `nvidia-smi` works; else install the NVIDIA driver again and restart',
    );
  }
  return ok(name, `none: ${reason}`);
}

/** The driver shows no device because it knows an older CUDA than this build needs. */
function isDriverTooOld({ driverVersion, runtimeVersion, devices }: CudaStatus): boolean {
  if (driverVersion === null || runtimeVersion === null || devices.length > 0) return false;
  return versionNumber(driverVersion) < versionNumber(runtimeVersion);
}

function versionNumber(version: string): number {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major * 100 + minor;
}

function deviceLine(device: CudaDevice): string {
  const { index, name, capability, memoryBytes, multiprocessors, integrated, pagedMemory, usable, reason } = device;
  const facts = [
    `compute capability ${capability}`,
    `${formatByteSize(memoryBytes)}${integrated ? " (the host's memory)" : ''}`,
    `${multiprocessors} multiprocessors`,
    ...(pagedMemory ? ['paged memory'] : []),
  ];
  return `cuda:${index} ${name}: ${facts.join(', ')}${usable ? '' : `; not used: ${reason ?? 'no reason given'}`}`;
}

/** What `odmoe doctor --json` says of CUDA. */
export function cudaJson(status: CudaStatus | null): unknown {
  if (status !== null) return snakeCaseKeys(status);
  const nothing = { architectures: [], usable: false, reason: 'the native library cannot be loaded', devices: [] };
  return { built: false, library: null, ...nothing, driver_version: null, runtime_version: null };
}
