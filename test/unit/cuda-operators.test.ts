/**
 * Runs the C++ tests of the CUDA backend (native/test/cuda) on the simulated device, in several orders of everything that the device
 * may order as it likes, and the tests of that device itself.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/config/package-root.js';
import { hasSimulatedCuda, simulatedCuda, type SimulatedDevice } from '../integration/harness/simulated-cuda.js';

const RUN_LIMIT_MS = 600_000;

interface Run {
  stdout: string;
  stderr: string;
  /** Null: ended by a signal. */
  status: number | null;
}

async function run(program: string, device: SimulatedDevice, groups: readonly string[] = []): Promise<Run> {
  const path = join(packageRoot(), 'build', 'Release', program);
  const options = { timeout: RUN_LIMIT_MS, env: { ...process.env, ...simulatedCuda(device) } };
  try {
    return { ...(await promisify(execFile)(path, [...groups], options)), status: 0 };
  } catch (thrown) {
    const { stdout = '', stderr = '', code } = thrown as { stdout?: string; stderr?: string; code?: unknown };
    return { stdout, stderr: `${stderr}${String(thrown)}`, status: typeof code === 'number' ? code : null };
  }
}

(hasSimulatedCuda('CUDA operators') ? describe : describe.skip)(
  'CUDA operators (C++) on the simulated device',
  function () {
    this.timeout(RUN_LIMIT_MS + 10_000);

    // Operators do not know how memory is given; whatever writes and reads experts does.
    const ofMemory = ['memory', 'key_values', 'loading', 'expert_memory', 'expert_paging', 'expert_slots'];
    const devices: [SimulatedDevice, string[]][] = [
      [{ seed: 1, spareBytes: 0 }, []],
      [{ seed: 2, vmm: 0 }, ofMemory],
      [{ seed: 3, integrated: 1 }, ofMemory],
    ];
    for (const [device, groups] of devices) {
      const what = `${groups.length > 0 ? `${groups.join(', ')} on ` : ''}${JSON.stringify(device)}`;
      it(`equal the scalar processor's to the bit, and keep the orders of memory: ${what}`, async () => {
        const { stdout, stderr, status } = await run('odmoe_cuda_tests', device, groups);
        assert.equal(status, 0, `${stdout}\n${stderr}`);
        assert.match(stdout, /[1-9]\d* passed, 0 failed/);
      });
    }

    it('run on a device that itself does what it should', async () => {
      const { stdout, stderr, status } = await run('odmoe_simulated_cuda_tests', {});
      assert.equal(status, 0, `${stdout}\n${stderr}`);
      assert.match(stdout, /simulated CUDA: [1-9]\d* cases, 0 failed/);
    });
  },
);
