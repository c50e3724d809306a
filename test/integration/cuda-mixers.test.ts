import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { openTestDevice } from '../unit/native-test-model.js';
import { logitDigests } from './harness/logits-on-cuda.js';
import { hasSimulatedCuda, simulatedCuda } from './harness/simulated-cuda.js';

const PROGRAM = fileURLToPath(new URL('harness/logits-on-cuda.js', import.meta.url));

(hasSimulatedCuda('CUDA mixers') ? describe : describe.skip)(
  'models of every kind on a CUDA device (simulated)',
  function () {
    this.timeout(300_000);

    it('give the logits of the processor, to the bit, also after a truncation and in forks', async () => {
      const device = openTestDevice();
      const expected = await logitDigests(device);
      device.dispose();
      // Memory that is released goes back at once, so that a use of it faults.
      const env = { ...process.env, ...simulatedCuda({ spareBytes: 0 }) };
      const { stdout } = await promisify(execFile)(process.execPath, [PROGRAM], { env });
      assert.deepEqual(JSON.parse(stdout), expected);
    });
  },
);
