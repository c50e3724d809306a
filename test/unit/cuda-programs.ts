import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { simulatedCuda, type SimulatedDevice } from '../integration/harness/simulated-cuda.js';

export const RUN_LIMIT_MS = 600_000;

interface Run {
  stdout: string;
  stderr: string;
  /** Exit status; null: a signal ended the program. */
  status: number | null;
}

/** These groups take two thirds of the time of all. npm test leaves them out; test/long/unit/cuda-operators.test.ts runs them. */
export const LONG_GROUPS: readonly string[] = ['attention', 'expert_slots'];

/** Runs a program of the build on a simulated device. */
export async function runOnDevice(
  program: string,
  device: SimulatedDevice,
  words: readonly string[] = [],
): Promise<Run> {
  const path = join(packageRoot(), 'build', 'Release', program);
  const options = { timeout: RUN_LIMIT_MS, env: { ...process.env, ...simulatedCuda(device) } };
  try {
    return { ...(await promisify(execFile)(path, [...words], options)), status: 0 };
  } catch (thrown) {
    const { stdout = '', stderr = '', code } = thrown as { stdout?: string; stderr?: string; code?: unknown };
    return { stdout, stderr: `${stderr}${String(thrown)}`, status: typeof code === 'number' ? code : null };
  }
}

/** Runs the C++ tests of the CUDA backend (native/test/cuda): either these groups, or all groups except the ones left out. */
export async function assertOperatorsEqual(
  device: SimulatedDevice,
  groups: readonly string[] | { leftOut: readonly string[] },
): Promise<void> {
  const words = 'leftOut' in groups ? groups.leftOut.flatMap((group) => ['--without', group]) : groups;
  const { stdout, stderr, status } = await runOnDevice('odmoe_cuda_tests', device, words);
  assert.equal(status, 0, `${stdout}\n${stderr}`);
  assert.match(stdout, /[1-9]\d* passed, 0 failed/);
}
