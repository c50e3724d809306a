// Models with every kind of layer that there is, with random weights, on a GPU: their logits must equal the processor's to the bit.
//   node dist/test/gpu/models.js [--device cuda:N]
// Last line: "N passed, N failed".
import { parseArgs } from 'node:util';
import { logitDigests } from '../integration/harness/logits-on-cuda.js';
import { openTestDevice } from '../unit/native-test-model.js';

const { values: options } = parseArgs({ options: { device: { type: 'string', default: 'cuda:0' } } });

const gpu = openTestDevice({ backend: 'cuda', device: Number(options.device.split(':')[1] ?? 0) });
const processor = openTestDevice();
const expected = await logitDigests(processor);
const got = await logitDigests(gpu);
processor.dispose();
gpu.dispose();
let failed = 0;
for (const [name, digest] of Object.entries(expected)) {
  const equal = got[name] === digest;
  if (!equal) failed++;
  console.log(`${equal ? 'passed' : 'FAILED'} ${name}`);
}
const passed = Object.keys(expected).length - failed;
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
