import assert from 'node:assert/strict';
import { alignedLayers } from '../../main-node/decode/aligned-layers.js';
import type { DeltaMixer, LayerShape, MixerShape } from '../../shared/model/model-shape.js';
import { plainLayer, plainShape } from './plain-shape.js';

const ROTARY = { rope: 0, pairing: 'neighbours', offset: 0 } as const;
const LATENT: MixerShape = {
  kind: 'latent',
  heads: 2,
  queryRank: 0,
  latentSize: 6,
  nopeSize: 4,
  ropeSize: 2,
  valueSize: 4,
  normEpsilon: 1e-6,
  scoreScale: 1,
  rotary: ROTARY,
};
const DELTA: DeltaMixer = {
  kind: 'delta',
  keyHeads: 1,
  valueHeads: 2,
  keyDim: 3,
  valueDim: 5,
  taps: 4,
  normEpsilon: 1e-6,
};
const CHANNEL_DELTA: MixerShape = { ...DELTA, decayWidth: 'channel' };
const CONVOLUTION: MixerShape = { kind: 'convolution', taps: 3 };
const STATE_SPACE: MixerShape = {
  kind: 'state-space',
  heads: 4,
  groups: 2,
  headDim: 3,
  stateSize: 5,
  taps: 4,
  convolutionBias: true,
  normGroups: 2,
  normEpsilon: 2 ** -20,
};

describe('main: layers in the alignment', () => {
  const withExperts = plainLayer();
  const dense: LayerShape = { ...withExperts, routed: null };

  it('belong to the first expert layer at or behind them, or to the end', () => {
    const layers = [dense, withExperts, withExperts, dense, dense, withExperts, dense];
    const { writtenBy } = alignedLayers(plainShape({ expertLayers: 3, layers }));
    assert.deepEqual(writtenBy, [[0, 1], [2], [3, 4, 5], [6]]);
  });

  it('have rows of the size that their mixers store, and a mark for recurrence', () => {
    const layers = [LATENT, DELTA, CONVOLUTION, STATE_SPACE, CHANNEL_DELTA].map((mixer) => ({ ...withExperts, mixer }));
    const aligned = alignedLayers(plainShape({ expertLayers: 5, layers, hiddenSize: 8 }));
    assert.deepEqual(aligned.layers, [
      { rowBytes: 4 * (6 + 2), recurrent: false },
      { rowBytes: 4 * (2 * 3 + 2 * 5 + 2 * 2), recurrent: true },
      { rowBytes: 4 * 8, recurrent: true },
      { rowBytes: 4 * (4 * 3 + 2 * 2 * 5 + 4), recurrent: true },
      { rowBytes: 4 * (2 * 3 + 2 * 5 + 2 + 2 * 3), recurrent: true },
    ]);
    assert.deepEqual(aligned.writtenBy, [[0], [1], [2], [3], [4], []]);
  });
});
