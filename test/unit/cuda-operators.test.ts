/**
 * Runs the C++ tests of the CUDA backend (native/test/cuda) on the simulated device, and the tests of that device itself. Attention,
 * slots, other devices and orders of memory: test/long/unit.
 */
import assert from 'node:assert/strict';
import { hasSimulatedCuda } from '../integration/harness/simulated-cuda.js';
import { assertOperatorsEqual, LONG_GROUPS, RUN_LIMIT_MS, runOnDevice } from './cuda-programs.js';

(hasSimulatedCuda('CUDA operators') ? describe : describe.skip)(
  'CUDA operators (C++) on the simulated device',
  function () {
    this.timeout(RUN_LIMIT_MS + 10_000);

    it("equal the scalar processor's to the bit, and keep the order of memory", () =>
      assertOperatorsEqual({ seed: 1, spareBytes: 0 }, { leftOut: LONG_GROUPS }));

    it('run on a device that passes its own checks', async () => {
      const { stdout, stderr, status } = await runOnDevice('odmoe_simulated_cuda_tests', {});
      assert.equal(status, 0, `${stdout}\n${stderr}`);
      assert.match(stdout, /simulated CUDA: [1-9]\d* cases, 0 failed/);
    });
  },
);
