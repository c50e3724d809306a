import assert from 'node:assert/strict';
import { isRecurrent } from '../../shared/model/model-shape.js';
import { sequenceMemoryBytes } from '../../main-node/room/sequence-memory.js';
import { RandomWeights } from './native-random-model.js';
import { openTestDevice } from './native-test-model.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

const PASS_ROWS = 70;

describe('the memory of a sequence', () => {
  for (const [name, shape] of Object.entries(RANDOM_SHAPES)) {
    it(`is known from the shape: ${name}`, async () => {
      const device = openTestDevice();
      const weights = new RandomWeights(shape);
      const model = await weights.load(device, true);
      const pass = model.createPass(PASS_ROWS);
      const sequence = model.createSequence();
      const recurrent = shape.layers.some(({ mixer }) => isRecurrent(mixer));
      try {
        assert.equal(sequenceMemoryBytes(shape, 0, PASS_ROWS), 0);
        for (const rows of [1, 40, PASS_ROWS, 3, PASS_ROWS, PASS_ROWS, 1, 1, 33]) {
          const start = sequence.length;
          const row = (value: (index: number) => number): Int32Array =>
            Int32Array.from({ length: rows }, (_, i) => value(i));
          await pass.begin(
            [sequence],
            row(() => 0),
            row((i) => start + i),
            row((i) => (start + i) % shape.vocabSize),
          );
          await pass.forward(null);
          const most = sequenceMemoryBytes(shape, sequence.length, PASS_ROWS);
          const held = model.sequenceBytes;
          if (recurrent) assert.ok(held <= most && held > most / 3, `${held} of ${most}`);
          else assert.equal(held, most);
        }
      } finally {
        for (const handle of [sequence, pass, model, device, weights]) handle.dispose();
      }
    });
  }
});
