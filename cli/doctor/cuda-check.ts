/** Checks for CUDA devices: the devices of this machine, or the reason why CUDA is not used. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { cudaStatus, type CudaDevice, type CudaStatus } from '../../native/index.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { ok, warn, type Check } from './check.js';

/** CUDA's error for a working driver without a device. Any other error means that the driver itself failed. */
const NO_DEVICE = 'cudaErrorNoDevice';

/** null: the native library cannot be loaded; its own check has the reason. */
export function lookForCuda(): CudaStatus | null {
  try {
    return cudaStatus();
  } catch (thrown) {
    if (toOdmoeError(thrown).code === 'DEVICE_UNAVAILABLE') return null;
    throw thrown;
  }
}

/** The file by which this machine shows that it has an NVIDIA GPU; null if it shows none. */
export function signOfGpu(): string | null {
  const list = readFileSync(join(packageRoot(), 'native', 'gpu-files.json'), 'utf8');
  const files = z.array(z.string()).parse(JSON.parse(list));
  return files.find((file) => existsSync(file)) ?? null;
}

/**
 * A machine without a GPU and a build without CUDA are fine. A GPU that cannot be used may be a problem.
 * @param gpu the file that shows a GPU, as signOfGpu finds it
 */
export function checkCuda(status: CudaStatus, gpu: string | null): Check {
  const name = 'CUDA';
  const { built, library, devices, usable, driverVersion, runtimeVersion } = status;
  const reason = status.reason ?? 'the library does not say why';
  if (!built && gpu !== null) {
    const found = `not used, though this machine has a GPU (${gpu}): ${reason}`;
    return warn(name, found, 'run `odmoe setup --cuda`; until then the processor is used');
  }
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
  if (runtimeVersion === null) return warn(name, `${library}: ${reason}`, 'run `odmoe setup --cuda`');
  if (driverVersion !== null && !reason.includes(NO_DEVICE)) {
    return warn(
      name,
      `${versions}\n${reason}`,
      'see whether `nvidia-smi` works; else install the NVIDIA driver again and restart',
    );
  }
  return ok(name, `none: ${reason}`);
}

/** True: the driver shows no device because its CUDA version is older than this build needs. */
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

/** The part of `odmoe doctor --json` about CUDA. */
export function cudaJson(status: CudaStatus | null): unknown {
  if (status !== null) return snakeCaseKeys(status);
  return {
    built: false,
    library: null,
    architectures: [],
    usable: false,
    reason: 'the native library cannot be loaded',
    devices: [],
    driver_version: null,
    runtime_version: null,
  };
}
