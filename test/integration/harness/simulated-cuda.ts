import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';

/** The CUDA backend on a stand-in for NVIDIA's runtime and driver (native/test/simulated_cuda): kernels run on the processor. */
export const SIMULATED_LIBRARY = join(packageRoot(), 'build', 'Release', 'libodmoe_cuda_simulated.so');

/** Settings of the simulated device, as in native/test/simulated_cuda/README.md. */
export interface SimulatedDevice {
  seed?: number;
  memoryBytes?: number;
  contextBytes?: number;
  capability?: string;
  driverVersion?: number;
  integrated?: 0 | 1;
  vmm?: 0 | 1;
  /** "lost:N": the device is lost after N kernels. */
  fault?: string;
  /** A setting of the backend. 0: released memory goes back to the driver at once, so that a later use of it faults. */
  spareBytes?: 0;
}

const NAMES: Record<keyof Omit<SimulatedDevice, 'spareBytes'>, string> = {
  seed: 'SEED',
  memoryBytes: 'MEMORY_BYTES',
  contextBytes: 'CONTEXT_BYTES',
  capability: 'CAPABILITY',
  driverVersion: 'DRIVER_VERSION',
  integrated: 'INTEGRATED',
  vmm: 'VMM',
  fault: 'FAULT',
};

/** The environment for a process that uses such a device. */
export function simulatedCuda({ spareBytes, ...device }: SimulatedDevice = {}): Record<string, string> {
  const settings = Object.entries(device).map(([name, value]) => [
    `ODMOE_SIMULATED_CUDA_${NAMES[name as keyof typeof NAMES]}`,
    String(value),
  ]);
  return {
    ODMOE_CUDA_LIBRARY: SIMULATED_LIBRARY,
    ...(spareBytes === undefined ? {} : { ODMOE_CUDA_SPARE_BYTES: String(spareBytes) }),
    ...(Object.fromEntries(settings) as Record<string, string>),
  };
}

/**
 * True if the library exists. On Linux it throws if the library is missing, because that is a fault of the build. Other systems (macOS) build
 * no such library; there it prints on stderr that the suite is skipped, and returns false.
 */
export function hasSimulatedCuda(suite: string): boolean {
  if (existsSync(SIMULATED_LIBRARY)) return true;
  if (process.platform === 'linux') throw new Error(`${SIMULATED_LIBRARY} is missing; run \`npm run build:tests\``);
  process.stderr.write(`SKIPPED: ${suite}: ${process.platform} has no ${SIMULATED_LIBRARY}\n`);
  return false;
}
