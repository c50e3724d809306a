import assert from 'node:assert/strict';
import { RandomWeights } from './native-random-model.js';
import { bits, openTestDevice } from './native-test-model.js';
import { PlainForward } from './plain-forward.js';
import { at } from './plain-mixers.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

const NAME = 'latent attention to the pools that indexers choose, and streams that end in their mean';
/** Many more pools than are chosen, and an unfinished one. */
const TOKENS = Array.from({ length: 43 }, (_, index) => (index * 17 + (index % 5)) % 61);
/** FP32 against FP64. */
const TOLERANCE = 2e-4;

describe('latent attention to chosen pools', () => {
  it('gives the logits of the formula in FP64, in one pass and in pieces that end within pools', async () => {
    const shape = RANDOM_SHAPES[NAME];
    assert.ok(shape !== undefined);
    const device = openTestDevice();
    const weights = new RandomWeights(shape);
    const model = await weights.load(device, true);
    const plain = new PlainForward({
      shape,
      tiedEmbeddings: false,
      dense: (role, layer) => weights.dense(role, layer),
      expert: (layer, expert) => weights.expert(layer, expert),
    });
    const expected = plain.run(TOKENS);
    const found: Float32Array[] = [];
    for (const step of [TOKENS.length, 6]) {
      const sequence = model.createSequence();
      const logits = new Float32Array(TOKENS.length * shape.vocabSize);
      for (let from = 0; from < TOKENS.length; from += step) {
        const tokens = Int32Array.from(TOKENS.slice(from, from + step));
        const pass = model.createPass(tokens.length);
        const positions = tokens.map((_, index) => from + index);
        await pass.begin([sequence], new Int32Array(tokens.length), positions, tokens);
        await pass.forward(null);
        logits.set(await pass.logits(tokens.map((_, index) => index)), from * shape.vocabSize);
        pass.dispose();
      }
      found.push(logits);
      sequence.dispose();
    }
    const [whole = new Float32Array(), pieces = new Float32Array()] = found;
    assert.deepEqual(bits(pieces), bits(whole));
    for (const [row, logits] of expected.entries()) {
      const errors = [...logits].map((value, token) => Math.abs(value - at(whole, row * shape.vocabSize + token)));
      assert.ok(Math.max(...errors) < TOLERANCE, `row ${row}: differs by ${Math.max(...errors)}`);
    }
    for (const one of [model, device, weights]) one.dispose();
  });
});
