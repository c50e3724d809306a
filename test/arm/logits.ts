// Digests of the logits of models with every kind of layer and random weights, computed with one instruction set: one line each, its name
// and its digest. test/arm/run compares those of two processors.
//   node dist/test/arm/logits.js INSTRUCTION_SET
import { instructionSets, type DeviceOptions } from '../../native/index.js';
import { logitDigests } from '../integration/harness/logits-on-cuda.js';
import { openTestDevice } from '../unit/native-test-model.js';

const instructionSet = (process.argv[2] ?? 'auto') as DeviceOptions['instructionSet'];
const device = openTestDevice({ instructionSet });
console.error(`${process.arch}: ${device.info().instructionSet} of ${instructionSets().join(', ')}`);
for (const [name, digest] of Object.entries(await logitDigests(device))) console.log(`${name}: ${digest}`);
device.dispose();
