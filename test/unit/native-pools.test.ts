/** Pools of positions in sequences with many of them, beside the formula in FP64: tests of all random shapes run few positions in FP64. */
import assert from 'node:assert/strict';
import type { Device, Model } from '../../native/index.js';
import type { LayerShape, ModelShape, PooledMixer } from '../../shared/model/model-shape.js';
import { RandomWeights } from './native-random-model.js';
import { bits, openTestDevice } from './native-test-model.js';
import { PlainForward } from './plain-forward.js';
import { at } from './plain-mixers.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

/** Many more pools than are chosen, and an unfinished one. */
const LENGTH = 43;
const TOKENS = Array.from({ length: LENGTH }, (_, index) => (index * 17 + (index % 5)) % 61);
/** FP32 against FP64. */
const TOLERANCE = 2e-4;

function shapeOf(name: string): ModelShape {
  const shape = RANDOM_SHAPES[name];
  assert.ok(shape !== undefined);
  return shape;
}

const CHOSEN = shapeOf('latent attention to the pools that indexers choose, and streams that end in their mean');
const POOLED = shapeOf('attention to pools of positions');

type Pools = NonNullable<PooledMixer['pools']>;

function pooledLayer(change: (pools: Pools) => Pools, more: Partial<PooledMixer> = {}): LayerShape {
  const layer = POOLED.layers.find(({ mixer }) => mixer.kind === 'pooled' && mixer.pools?.indexer !== undefined);
  assert.ok(layer?.mixer.kind === 'pooled' && layer.mixer.pools !== undefined);
  return { ...layer, mixer: { ...layer.mixer, ...more, pools: change(layer.mixer.pools) } };
}

/** The layer's pools with so many entries for a row. */
function choosing(positions: number, overlaps: boolean, entries: number): (pools: Pools) => Pools {
  return ({ indexer }) => {
    assert.ok(indexer !== undefined);
    return { positions, overlaps, indexer: { ...indexer, entries } };
  };
}

const withoutIndexer = (positions: number, overlaps: boolean) => (): Pools => ({ positions, overlaps });

function modelOf(layers: LayerShape[], more: Partial<ModelShape> = {}): ModelShape {
  return { ...POOLED, layers, expertLayers: layers.filter(({ routed }) => routed !== null).length, ...more };
}

const SHAPES: Readonly<Record<string, ModelShape>> = {
  'latent attention to chosen pools': CHOSEN,
  'attention to pools as the random model has them': POOLED,
  'pools of one position that overlap': modelOf([pooledLayer(choosing(1, true, 2))]),
  'one entry of pools of five, a window of one, one group': modelOf([
    pooledLayer(choosing(5, false, 1), { window: 1, outputGroups: 1 }),
  ]),
  'a window beyond the context, and pools without an indexer': modelOf([
    pooledLayer(withoutIndexer(3, true), { window: 1000 }),
  ]),
  'more entries than pools, and pools beyond the context': modelOf([
    pooledLayer(choosing(4, true, 10_000)),
    pooledLayer(withoutIndexer(5000, true)),
  ]),
  'a context that is no multiple of the pools': modelOf(
    [pooledLayer(choosing(4, true, 3)), pooledLayer(withoutIndexer(32, true))],
    { maxPositions: LENGTH },
  ),
};

/** Runs the positions in passes of `step` rows. `drafts`: wrong rows behind those of each pass, which the next pass runs over. */
async function logitsOf(model: Model, vocabSize: number, step: number, drafts: number): Promise<Float32Array> {
  const sequence = model.createSequence();
  const logits = new Float32Array(LENGTH * vocabSize);
  for (let from = 0; from < LENGTH; from += step) {
    const kept = TOKENS.slice(from, from + step);
    const wrong = TOKENS.slice(from + kept.length, from + kept.length + drafts).map((token) => (token + 7) % 61);
    const tokens = Int32Array.from([...kept, ...wrong]);
    const pass = model.createPass(tokens.length);
    const positions = tokens.map((_, index) => from + index);
    await pass.begin([sequence], new Int32Array(tokens.length), positions, tokens);
    await pass.forward(null);
    logits.set(await pass.logits(Int32Array.from(kept.keys())), from * vocabSize);
    pass.dispose();
  }
  sequence.dispose();
  return logits;
}

describe('pools of positions', () => {
  let device: Device;

  before(() => {
    device = openTestDevice();
  });

  after(() => device.dispose());

  for (const [name, shape] of Object.entries(SHAPES)) {
    it(`give the logits of the formula in FP64, also in pieces and behind wrong drafts: ${name}`, async () => {
      const weights = new RandomWeights(shape);
      const model = await weights.load(device, true);
      const plain = new PlainForward({
        shape,
        tiedEmbeddings: false,
        dense: (role, layer) => weights.dense(role, layer),
        expert: (layer, expert) => weights.expert(layer, expert),
      });
      const whole = await logitsOf(model, shape.vocabSize, LENGTH, 0);
      const pieces = await logitsOf(model, shape.vocabSize, 6, 5);
      assert.deepEqual(bits(pieces), bits(whole));
      for (const [row, logits] of plain.run(TOKENS).entries()) {
        const errors = [...logits].map((value, token) => Math.abs(value - at(whole, row * shape.vocabSize + token)));
        assert.ok(Math.max(...errors) < TOLERANCE, `row ${row}: differs by ${Math.max(...errors)}`);
      }
      for (const one of [model, weights]) one.dispose();
    });
  }
});
