import assert from 'node:assert/strict';
import { attendMs, behindMs, layersMs, type LayerTime } from '../../engine/emulation/device-profile.js';
import { cacheRowBytes, layersWork } from '../../engine/emulation/layer-arithmetic.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { plainGlu, plainShape } from '../../engine/emulation/plain-shape.js';
import {
  type DeltaMixer,
  type LayerShape,
  type MixerShape,
  type ModelShape,
  recurrentStateFloats,
  type StateSpaceMixer,
} from '../../shared/model/model-shape.js';
import { paperProfileFile } from '../../bench/paper/measure-set-ups.js';

const HIDDEN = 64;
const PLAIN = plainShape({
  layers: 1,
  hiddenSize: HIDDEN,
  intermediateSize: 32,
  heads: 4,
  keyValueHeads: 2,
  headDim: 16,
  vocabSize: 100,
  experts: 8,
  expertsPerToken: 2,
});
const ROUTER_WEIGHTS = 8 * HIDDEN;
const [PLAIN_LAYER] = PLAIN.layers;
assert.ok(PLAIN_LAYER);
const plainLayer: LayerShape = PLAIN_LAYER;
const denseLayer: LayerShape = { ...plainLayer, routed: null, always: { glu: plainGlu(48), gated: true } };

function shapeOf(...layers: LayerShape[]): ModelShape {
  return { ...PLAIN, layers, expertLayers: layers.filter(({ routed }) => routed !== null).length };
}

function workOf(mixer: MixerShape) {
  const [work] = layersWork(shapeOf({ ...plainLayer, mixer }));
  assert.ok(work);
  return work;
}

describe('the emulated work of a layer', () => {
  it('includes the matrices of attention and router, and keys and values of the context', () => {
    const [work] = layersWork(PLAIN);
    const attention = HIDDEN * (2 * 4 * 16 + 2 * 2 * 16);
    assert.equal(work?.weights, attention + ROUTER_WEIGHTS);
    assert.equal(work.rowFlop, 2 * (attention + ROUTER_WEIGHTS));
    assert.equal(work.stateBytes, 0);
    assert.deepEqual(work.context, [{ positionBytes: 2 * 2 * 16 * 4, rowPositionFlop: 4 * 4 * 16, window: 0 }]);
  });

  it('includes the part that every row passes, and no router where there are no experts', () => {
    const [dense, routed] = layersWork(shapeOf(denseLayer, plainLayer));
    assert.equal(dense?.weights, (routed?.weights ?? 0) - ROUTER_WEIGHTS + 3 * HIDDEN * 48 + HIDDEN);
  });

  it('includes the latent form: a cache row has a latent and a rotated part', () => {
    const rotary = { rope: 0, pairing: 'neighbours', offset: 0 } as const;
    const work = workOf({
      kind: 'latent',
      heads: 4,
      queryRank: 24,
      latentSize: 32,
      nopeSize: 16,
      ropeSize: 8,
      valueSize: 12,
      normEpsilon: 1,
      scoreScale: 1,
      rotary,
    });
    const query = 24 * HIDDEN + 4 * 24 * 24;
    const latent = 40 * HIDDEN + 4 * 32 * 16 + 4 * 12 * 32;
    assert.equal(work.weights, query + latent + HIDDEN * 48 + ROUTER_WEIGHTS);
    assert.deepEqual(work.context, [{ positionBytes: 40 * 4, rowPositionFlop: 2 * 4 * (40 + 32), window: 0 }]);
  });

  it('includes the scores of an indexer over all positions, and attention to those that it chooses, here and in layers that share it', () => {
    const rotary = { rope: 0, pairing: 'neighbours', offset: 0 } as const;
    const plain = {
      kind: 'latent',
      heads: 4,
      queryRank: 24,
      latentSize: 32,
      nopeSize: 16,
      ropeSize: 8,
      valueSize: 12,
      normEpsilon: 1,
      scoreScale: 1,
      rotary,
    } as const;
    const indexer = { heads: 3, headDim: 10, positions: 7, normEpsilon: 1, rotary };
    const mixers: MixerShape[] = [{ ...plain, indexer }, { ...plain, sharesIndexer: true }, plain];
    const works = layersWork(shapeOf(...mixers.map((mixer) => ({ ...plainLayer, mixer }))));
    const attention = { positionBytes: 40 * 4, rowPositionFlop: 2 * 4 * (40 + 32), window: 7 };
    assert.deepEqual(
      works.map(({ context }) => context),
      [
        [{ positionBytes: 10 * 4, rowPositionFlop: 2 * 3 * 10, window: 0 }, attention],
        [attention],
        [{ ...attention, window: 0 }],
      ],
    );
    assert.deepEqual(works.map(cacheRowBytes), [50 * 4, 40 * 4, 40 * 4]);
  });

  it('includes the scores of a block indexer over all positions, and attention to the blocks that it chooses', () => {
    const plain = plainLayer.mixer;
    assert.ok(plain.kind === 'attention');
    const blockIndexer = { headDim: 10, blockSize: 8, blocks: 3, localBlocks: 1, normEpsilon: 1, rotary: null };
    const [work, ordinary] = layersWork(
      shapeOf({ ...plainLayer, mixer: { ...plain, blockIndexer } }, { ...plainLayer, mixer: plain }),
    );
    const [attention] = ordinary?.context ?? [];
    assert.ok(work !== undefined && attention !== undefined);
    assert.deepEqual(work.context, [
      { positionBytes: 10 * 4, rowPositionFlop: 2 * plain.keyValueHeads * 10, window: 0 },
      { ...attention, window: 3 * 8 },
    ]);
    assert.equal(cacheRowBytes(work), 10 * 4 + attention.positionBytes);
  });

  it('includes the state of a delta net and of a convolution, which have no attention over the context', () => {
    const delta: DeltaMixer = {
      kind: 'delta',
      keyHeads: 2,
      valueHeads: 4,
      keyDim: 8,
      valueDim: 16,
      taps: 4,
      normEpsilon: 1,
    };
    const channels = 2 * 2 * 8 + 4 * 16;
    const state = 4 * 8 * 16;
    assert.equal(recurrentStateFloats(delta, HIDDEN), 3 * channels + state);
    const work = workOf(delta);
    assert.deepEqual(work.context, []);
    assert.equal(work.stateBytes, 2 * 4 * (3 * channels + state));
    assert.equal(work.rowFlop, 2 * work.weights + 2 * 4 * channels + 7 * state);
    // Kimi delta attention: matrices of the projections, and of the low-rank forms of gate and decays.
    const byChannel: DeltaMixer = { ...delta, keyHeads: 4, decayWidth: 'channel', lowRank: 6 };
    const products = HIDDEN * (2 * 4 * 8 + 2 * 4 * 16 + 4 + 2 * 6) + 6 * (4 * 16 + 4 * 8);
    assert.equal(workOf(byChannel).weights, products + ROUTER_WEIGHTS);
    assert.equal(recurrentStateFloats(byChannel, HIDDEN), 3 * (2 * 4 * 8 + 4 * 16) + state);
    const convolution = { kind: 'convolution', taps: 3 } as const;
    assert.equal(recurrentStateFloats(convolution, HIDDEN), 2 * HIDDEN);
    const space: StateSpaceMixer = {
      kind: 'state-space',
      heads: 6,
      groups: 2,
      headDim: 8,
      stateSize: 16,
      taps: 4,
      convolutionBias: true,
      normGroups: 2,
      normEpsilon: 2 ** -10,
    };
    assert.equal(recurrentStateFloats(space, HIDDEN), 3 * (6 * 8 + 2 * 2 * 16) + 6 * 8 * 16);
    const matrices = HIDDEN * (6 * 8 + 2 * 2 * 16 + 6 + 2 * 6 * 8);
    const spaceWork = workOf(space);
    assert.equal(spaceWork.weights, matrices + ROUTER_WEIGHTS);
    assert.equal(spaceWork.rowFlop, 2 * (matrices + ROUTER_WEIGHTS) + 2 * 4 * (6 * 8 + 2 * 2 * 16) + 5 * 6 * 8 * 16);
    assert.deepEqual(spaceWork.context, []);
    assert.equal(workOf(convolution).rowFlop, 2 * workOf(convolution).weights + 2 * 3 * HIDDEN);
  });
});

describe('the emulated work of residual streams', () => {
  it('is their maps, the sum that a part takes, and the mix behind it, once a part', () => {
    const streams = { kind: 'mixed', count: 4, epsilon: 2 ** -20, rounds: 20 } as const;
    const shape = shapeOf(denseLayer, { ...plainLayer, routed: null }, plainLayer);
    const plain = layersWork(shape);
    const work = layersWork({ ...shape, streams });
    const map = 24 * 4 * HIDDEN;
    const ending = 4 * 4 * HIDDEN;
    for (const [layer, parts] of [2, 1, 2].entries()) {
      const more = (work[layer]?.weights ?? 0) - (plain[layer]?.weights ?? 0);
      assert.equal(more, parts * map + (layer === 0 ? ending : 0));
      assert.equal((work[layer]?.rowFlop ?? 0) - (plain[layer]?.rowFlop ?? 0), 2 * more + 2 * parts * 24 * HIDDEN);
    }
  });
});

describe("the emulated time of main's layers", () => {
  it('is counted for the expert layer that follows; layers behind the last one are separate', () => {
    const profile = loadDeviceProfile(paperProfileFile('rtx3090-testbed'));
    const shape = shapeOf(denseLayer, plainLayer, denseLayer, denseLayer, plainLayer, denseLayer);
    const times = nodeTimes({ ...profile, model: { ...profile.model, shape } }, 'main', 'fp32');
    assert.deepEqual(
      times.attendLayers.map((layers) => layers.length),
      [2, 3],
    );
    assert.equal(times.layersBehind.length, 1);
    const positions = Int32Array.of(5);
    const { denseOverheadMs } = profile.devices.main;
    const [first, second] = [attendMs(times, 0, positions), attendMs(times, 1, positions)];
    assert.ok(first > 2 * denseOverheadMs && second > 3 * denseOverheadMs);
    assert.equal(behindMs(times, positions), second - first);
    // A model with more expert layers than the profiled one.
    assert.equal(attendMs(times, 2, positions), first);
  });

  it('reads the cache rows of a sequence once for all rows, and a window bounds reads and products', () => {
    const layer = (window: number, rowPositionMs: number): LayerTime => ({
      overheadMs: 1,
      weightsMs: 2,
      rowMs: 0.5,
      context: [{ positionMs: 0.1, rowPositionMs, window }],
    });
    const positions = Int32Array.of(9, 10, 11);
    near(layersMs([layer(0, 0)], positions), 1 + 2 + 12 * 0.1);
    near(layersMs([layer(4, 0)], positions), 1 + 2 + 4 * 0.1);
    near(layersMs([layer(0, 1)], positions), 1 + 2 + (10 + 11 + 12));
    near(layersMs([layer(4, 1)], positions), 1 + 2 + 12);
    near(layersMs([{ ...layer(0, 0), context: [] }], positions), 3);
    const context = [...layer(0, 0).context, ...layer(4, 1).context];
    near(layersMs([{ ...layer(0, 0), context }], positions), 1 + 2 + 12 * 0.1 + 12);
    near(layersMs([], positions), 0);
  });
});

function near(actual: number, expected: number): void {
  assert.ok(Math.abs(actual - expected) < 1e-9, `${actual} is not ${expected}`);
}
