import assert from 'node:assert/strict';
import { denseFormat } from '../../engine/loading/load-weights.js';
import type { Device, Model } from '../../native/index.js';
import { type ModelShape } from '../../shared/model/model-shape.js';
import { shapeProblem } from '../../shared/model/shape-problem.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { RandomWeights } from './native-random-model.js';
import { bits, openTestDevice } from './native-test-model.js';
import { PlainForward } from './plain-forward.js';
import { at, multiply, plainMixer, rmsNorm, type Vector, type Weights } from './plain-mixers.js';
import { beginRows, takeRows } from './plain-streams.js';
import { plainValues } from './plain-values.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

const TOKENS = [5, 9, 31, 7, 55, 20, 31, 60, 2, 44];
/** FP32 against FP64. */
const TOLERANCE = 2e-4;
const NAME = 'residual streams that each part mixes';

function requireShape(): ModelShape {
  const shape = RANDOM_SHAPES[NAME];
  assert.ok(shape?.streams !== undefined);
  return shape;
}

function near(actual: ArrayLike<number>, expected: Vector, what: string): void {
  const errors = [...expected].map((value, index) => Math.abs(value - at(actual, index)));
  assert.ok(Math.max(...errors) < TOLERANCE, `${what}: differs by ${Math.max(...errors)}`);
}

describe('residual streams', () => {
  const shape = requireShape();
  let device: Device;
  let weights: RandomWeights;
  let model: Model;
  let plain: PlainForward;
  const ofLayer =
    (layer: number): Weights =>
    (role) =>
      plainValues(weights.dense(role, layer));

  before(async () => {
    device = openTestDevice();
    weights = new RandomWeights(shape);
    model = await weights.load(device, true);
    plain = new PlainForward({
      shape,
      tiedEmbeddings: false,
      dense: (role, layer) => weights.dense(role, layer),
      expert: (layer, expert) => weights.expert(layer, expert),
    });
  });

  after(() => {
    model.dispose();
    device.dispose();
    weights.dispose();
  });

  it('give the logits and the last states of the formula in FP64', async () => {
    const sequence = model.createSequence();
    const pass = model.createPass(TOKENS.length);
    const rows = Int32Array.from(TOKENS.keys());
    await pass.begin([sequence], new Int32Array(TOKENS.length), rows, Int32Array.from(TOKENS));
    await pass.forward(null);
    const { hiddenSize, vocabSize } = shape;
    const states = await pass.states(rows, false);
    const logits = await pass.logits(rows);
    for (const [row, state] of plain.states(TOKENS).entries()) {
      near(states.subarray(row * hiddenSize, (row + 1) * hiddenSize), state, `state ${row}`);
    }
    for (const [row, expected] of plain.run(TOKENS).entries()) {
      near(logits.subarray(row * vocabSize, (row + 1) * vocabSize), expected, `logits ${row}`);
    }
    pass.dispose();
    sequence.dispose();
  });

  it('show the sum that the next mixer takes, and at the end the state that the final norm takes', async () => {
    const sequence = model.createSequence();
    const pass = model.createPass(1);
    await pass.begin([sequence], Int32Array.of(0), Int32Array.of(0), Int32Array.of(TOKENS[0] ?? 0));
    const begun = new Float32Array(shape.hiddenSize);
    await pass.residual(begun);
    const embedding = plainValues(weights.dense('embedding', 0)).data;
    const row = embedding.slice((TOKENS[0] ?? 0) * shape.hiddenSize, ((TOKENS[0] ?? 0) + 1) * shape.hiddenSize);
    near(begun, takeRows(beginRows(row, shape), 'mixer', shape, ofLayer(0)).input, 'the first mixer');
    await pass.forward(null);
    const ended = new Float32Array(shape.hiddenSize);
    await pass.residual(ended);
    assert.deepEqual(bits(ended), bits(await pass.states(Int32Array.of(0), false)));
    pass.dispose();
    sequence.dispose();
  });

  it('choose experts ahead by the sum that the later layer would take of the streams as they are', async () => {
    const [first] = shape.layers;
    assert.ok(first !== undefined);
    const later = shape.layers.findLastIndex(({ routed }) => routed !== null);
    const sequence = model.createSequence();
    const pass = model.createPass(1);
    const token = TOKENS[1] ?? 0;
    await pass.begin([sequence], Int32Array.of(0), Int32Array.of(0), Int32Array.of(token));
    await pass.attend(0, new Uint8Array(4 * shape.hiddenSize));
    const { experts } = await pass.chooseAhead(shape.expertLayers - 1);
    pass.dispose();
    sequence.dispose();

    const embedding = plainValues(weights.dense('embedding', 0)).data;
    const row = embedding.slice(token * shape.hiddenSize, (token + 1) * shape.hiddenSize);
    const taken = takeRows(beginRows(row, shape), 'mixer', shape, ofLayer(0));
    const normed = rmsNorm(taken.input, shape.normEpsilon, ofLayer(0)('mixerNorm').data);
    const [output] = plainMixer(first.mixer, [normed], ofLayer(0), shape, { positions: [] });
    assert.ok(output !== undefined);
    const rows = taken.give(output.map((value) => value * shape.residualScale));
    const { input } = takeRows(rows, 'feedForward', shape, ofLayer(later));
    const state = rmsNorm(input, shape.normEpsilon, ofLayer(later)('feedForwardNorm').data);
    const logits = multiply(ofLayer(later)('router'), state);
    const ranked = [...logits.keys()].sort((a, b) => at(logits, b) - at(logits, a));
    assert.deepEqual([...experts], ranked.slice(0, shape.expertsPerToken));
  });

  it('without a mix, and latent attention with sinks and gates, give the logits of the formula in FP64', async () => {
    const added = RANDOM_SHAPES['residual streams without a mix, and latent attention with sinks and gates'];
    assert.ok(added?.streams?.kind === 'added');
    const own = new RandomWeights(added);
    const loaded = await own.load(device, true);
    const formula = new PlainForward({
      shape: added,
      tiedEmbeddings: false,
      dense: (role, layer) => own.dense(role, layer),
      expert: (layer, expert) => own.expert(layer, expert),
    });
    const sequence = loaded.createSequence();
    const pass = loaded.createPass(TOKENS.length);
    const rows = Int32Array.from(TOKENS.keys());
    await pass.begin([sequence], new Int32Array(TOKENS.length), rows, Int32Array.from(TOKENS));
    await pass.forward(null);
    const logits = await pass.logits(rows);
    for (const [row, expected] of formula.run(TOKENS).entries()) {
      near(logits.subarray(row * added.vocabSize, (row + 1) * added.vocabSize), expected, `logits ${row}`);
    }
    pass.dispose();
    sequence.dispose();
    loaded.dispose();
    own.dispose();
  });

  it('have maps that are never quantized', () => {
    const source: Pick<ModelSource, 'tiedEmbeddings'> = { tiedEmbeddings: false };
    const formatOf = (role: 'mixerStreamMap' | 'finalStreamMap' | 'mixerOutput') =>
      denseFormat(role, weights.dense(role, 0), source, 'nf4', 'all');
    assert.equal(formatOf('mixerStreamMap'), 'fp32');
    assert.equal(formatOf('finalStreamMap'), 'fp32');
    assert.equal(formatOf('mixerOutput'), 'nf4');
  });

  it('are refused beside what has no meaning for them', () => {
    const [layer, ...others] = shape.layers;
    assert.ok(layer !== undefined);
    const problem = (changes: Partial<ModelShape>): string => shapeProblem({ ...shape, ...changes }) ?? '';
    assert.equal(problem({}), '');
    assert.match(problem({ draftHead: { chained: 'plain' } }), /head that drafts has no residual streams/);
    assert.match(problem({ layers: [{ ...layer, parallel: true }, ...others] }), /layer 0: a parallel block/);
    assert.match(problem({ layers: [{ ...layer, layerScale: true }, ...others] }), /layer 0: a parallel block/);
  });
});
