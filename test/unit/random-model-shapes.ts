/** Small models that together have every feature of a model. Sizes are uneven on purpose. */
import { plainGlu, plainShape } from '../../engine/emulation/plain-shape.js';
import type {
  AttentionMixer,
  BlockIndexerShape,
  DeltaMixer,
  GluShape,
  IndexerShape,
  LatentMixer,
  LayerShape,
  ModelShape,
  PooledMixer,
  RouterShape,
  StateSpaceMixer,
} from '../../shared/model/model-shape.js';

const HIDDEN = 40;
const PLAIN = plainShape({
  layers: 1,
  hiddenSize: HIDDEN,
  intermediateSize: 24,
  heads: 4,
  keyValueHeads: 2,
  headDim: 12,
  vocabSize: 61,
  experts: 8,
  expertsPerToken: 3,
});

const f = Math.fround;
const ROPES = [
  { frequencies: [1, f(0.3), f(0.05)], scale: 1 },
  { frequencies: [f(0.7), f(0.2), 0, f(0.01)], scale: f(1.2) },
];
const MAX_POSITIONS = 700;

function first<Item>(items: readonly Item[]): Item {
  const [item] = items;
  if (item === undefined) throw new Error('nothing there');
  return item;
}

const LAYER = first(PLAIN.layers);

function attention(changes: Partial<AttentionMixer>): AttentionMixer {
  if (LAYER.mixer.kind !== 'attention') throw new Error('plain layers have attention');
  return { ...LAYER.mixer, rotary: { rope: 0, pairing: 'halves', offset: 0 }, ...changes };
}

function router(changes: Partial<RouterShape>): RouterShape {
  if (LAYER.routed === null) throw new Error('plain layers have experts');
  return { ...LAYER.routed, ...changes };
}

function always(changes: Partial<GluShape>, gated: boolean): LayerShape['always'] {
  return { glu: { ...plainGlu(28), ...changes }, gated };
}

const dense = (mixer: LayerShape['mixer']): LayerShape => ({
  ...LAYER,
  mixer,
  routed: null,
  always: always({}, false),
});

function model(layers: LayerShape[], changes: Partial<ModelShape> = {}): ModelShape {
  const expertLayers = layers.filter((layer) => layer.routed !== null).length;
  return { ...PLAIN, maxPositions: MAX_POSITIONS, ropes: ROPES, layers, expertLayers, ...changes };
}

const latent = (queryRank: number): LatentMixer => ({
  kind: 'latent',
  heads: 3,
  queryRank,
  latentSize: 20,
  nopeSize: 9,
  ropeSize: 8,
  valueSize: 7,
  normEpsilon: f(1e-6),
  scoreScale: f(0.24),
  rotary: { rope: 1, pairing: 'neighbours', offset: 0 },
});
const INDEXER: IndexerShape = {
  heads: 5,
  headDim: 10,
  positions: 7,
  normEpsilon: f(1e-6),
  rotary: { rope: 1, pairing: 'halves', offset: 0 },
};
const BLOCKS: BlockIndexerShape = {
  headDim: 10,
  blockSize: 4,
  blocks: 3,
  localBlocks: 2,
  normEpsilon: f(1e-6),
  rotary: { rope: 1, pairing: 'halves', offset: 1 },
};
const INDEXED: LatentMixer = { ...latent(11), indexer: INDEXER };
/** GLM-5-Next's. */
const UNROTATED: LatentMixer = { ...latent(11), ropeSize: 0, rotary: null };
const POOLED_INDEXER: IndexerShape = { ...INDEXER, positions: 12, rotary: null, poolPositions: 4 };
const DELTA: DeltaMixer = {
  kind: 'delta',
  keyHeads: 2,
  valueHeads: 4,
  keyDim: 8,
  valueDim: 6,
  taps: 4,
  normEpsilon: f(1e-6),
};

/** Kimi delta attention. */
const CHANNEL_DELTA: DeltaMixer = {
  ...DELTA,
  keyHeads: 3,
  valueHeads: 3,
  decayWidth: 'channel',
  lowRank: 5,
  gateFunction: 'sigmoid',
  separateConvolutions: true,
};

const STATE_SPACE: StateSpaceMixer = {
  kind: 'state-space',
  heads: 4,
  groups: 2,
  headDim: 7,
  stateSize: 9,
  taps: 4,
  convolutionBias: true,
  normGroups: 2,
  normEpsilon: f(1e-5),
};

const pooled = (pools: PooledMixer['pools']): PooledMixer => ({
  kind: 'pooled',
  heads: 6,
  headDim: 13,
  queryRank: 11,
  outputGroups: 3,
  outputRank: 5,
  window: 6,
  normEpsilon: f(1e-6),
  scoreScale: f(0.3),
  rotary: { rope: 1, pairing: 'neighbours', offset: 5 },
  ...(pools === undefined ? {} : { pools }),
});
const POOL_INDEXER = {
  heads: 5,
  headDim: 10,
  entries: 7,
  rotary: { rope: 0, pairing: 'neighbours' as const, offset: 4 },
};

export const RANDOM_SHAPES: Record<string, ModelShape> = {
  'attention with biases, sinks, gates and windows': model(
    [
      {
        ...LAYER,
        mixer: attention({
          bias: true,
          outputBias: true,
          sinks: true,
          window: 5,
          outputGate: true,
          queryKeyNorm: 'head',
        }),
        routed: router({ bias: true, score: 'sigmoid', choiceBias: true, groups: 4, groupsKept: 2, scale: 2 }),
        always: always({}, true),
      },
      dense(attention({ rotary: { rope: 1, pairing: 'neighbours', offset: 3 }, valueNorm: true })),
      { ...LAYER, mixer: attention({ rotary: null }), always: always({ activation: 'tanh' }, false) },
    ],
    {
      norm: 'layer',
      lmHeadBias: true,
      logitDivisor: 3,
      logitCap: 2,
      residualScale: f(0.7),
      embeddingScale: 5,
      expert: { ...plainGlu(24), alpha: f(1.7), limit: 1, upOffset: 1, bias: true },
    },
  ),
  'norms of every branch': model([
    {
      ...LAYER,
      mixer: attention({ keysAreValues: true, valueNorm: true, bias: true, queryKeyNorm: 'all', clip: f(0.8) }),
      mixerOutputNorm: true,
      routedNorm: true,
      routerNorm: true,
      alwaysOutputNorm: true,
      routedOutputNorm: true,
      feedForwardOutputNorm: true,
      layerScale: true,
      routed: router({ expertScale: true }),
      always: always({ activation: 'tanh' }, true),
    },
    {
      ...LAYER,
      mixer: attention({ queryKeyNorm: 'head', normAfterRotation: true, clip: f(1.5) }),
      routedOutputNorm: true,
      feedForwardOutputNorm: false,
      layerScale: true,
    },
    { ...dense(attention({})), alwaysOutputNorm: true, feedForwardOutputNorm: true },
  ]),
  'heads, gates and limits by layer': model(
    [
      {
        ...LAYER,
        mixer: attention({ outputGate: true, outputGateWidth: 'head', outputGateFunction: 'softplus' }),
        routed: router({ score: 'sqrt-softplus', choiceBias: true, normalize: true, logitCap: f(0.9) }),
        always: always({ limit: f(0.2), limitOn: 'activation' }, false),
      },
      {
        ...LAYER,
        mixer: attention({ heads: 6, window: 4, valueDim: 7, outputGate: true, outputGateWidth: 'head' }),
        expertLimit: f(0.3),
      },
      {
        ...LAYER,
        mixer: attention({ heads: 2, outputGate: true, outputGateFunction: 'softplus' }),
        routed: router({ score: 'sqrt-softplus', byToken: true, normalize: true, bias: true, logitCap: 2 }),
        expertLimit: 0,
        always: always({ activation: 'tanh', limit: f(0.1), limitOn: 'activation' }, true),
      },
    ],
    { expert: { ...plainGlu(24), limit: f(0.5), limitOn: 'activation' } },
  ),
  'attention to pools of positions': model([
    { ...LAYER, mixer: pooled(undefined) },
    { ...LAYER, mixer: pooled({ positions: 4, overlaps: true, indexer: POOL_INDEXER }), always: always({}, false) },
    { ...LAYER, mixer: pooled({ positions: 16, overlaps: false }) },
    dense(pooled({ positions: 3, overlaps: true })),
    { ...LAYER, mixer: pooled({ positions: 2, overlaps: false, indexer: { ...POOL_INDEXER, headDim: 13 } }) },
  ]),
  'latent attention between dense layers': model([
    dense(latent(0)),
    { ...LAYER, mixer: latent(14), always: always({}, false) },
    dense(latent(14)),
    { ...LAYER, mixer: latent(0) },
    dense(attention({})),
  ]),
  'parallel blocks, and values of another size than keys': model(
    [
      {
        ...LAYER,
        mixer: attention({ valueDim: 7, valueScale: f(0.7), bias: true, outputGate: true, window: 4, sinks: true }),
        parallel: true,
        feedForwardScale: 0.5,
        always: always({}, false),
      },
      { ...dense(attention({ valueDim: 20, valueNorm: true, clip: f(0.9) })), parallel: true },
      { ...LAYER, mixer: attention({ keyValueHeads: 4, valueDim: 5, valueScale: f(1.3) }) },
    ],
    { norm: 'layer-without-bias', logitDivisor: f(1 / 0.7), residualScale: f(0.8) },
  ),
  'latent attention with queries scaled by position': model(
    [
      { ...dense(latent(14)), parallel: true },
      { ...LAYER, mixer: latent(0), feedForwardScale: f(0.6), feedForwardOutputNorm: true },
    ],
    { queryScale: { beta: f(0.3), length: 16 } },
  ),
  'latent attention at the positions that indexers choose': model([
    dense(INDEXED),
    { ...LAYER, mixer: { ...latent(14), sharesIndexer: true }, always: always({}, false) },
    dense(latent(0)),
    { ...LAYER, mixer: { ...latent(0), sharesIndexer: true } },
    dense({ ...INDEXED, indexer: { ...INDEXER, heads: 20, headDim: 33, positions: 300 } }),
  ]),
  'latent attention to the pools that indexers choose, and streams that end in their mean': model(
    [
      dense({ ...UNROTATED, indexer: POOLED_INDEXER }),
      { ...LAYER, mixer: { ...UNROTATED, sharesIndexer: true }, always: always({}, false) },
      dense({ ...CHANNEL_DELTA, decayFloor: -5 }),
      { ...LAYER, mixer: { ...INDEXED, indexer: { ...INDEXER, positions: 9, poolPositions: 1 } } },
      dense({ ...latent(11), indexer: { ...INDEXER, headDim: 33, positions: 296, poolPositions: 37 } }),
    ],
    { streams: { kind: 'mixed', count: 3, epsilon: f(1e-6), rounds: 3, ending: 'mean' } },
  ),
  'attention to the blocks that indexers choose': model([
    {
      ...LAYER,
      mixer: attention({ blockIndexer: BLOCKS, queryKeyNorm: 'head', bias: true }),
      always: always({}, false),
    },
    dense(
      attention({ valueDim: 7, outputGate: true, valueScale: f(0.7), blockIndexer: { ...BLOCKS, localBlocks: 0 } }),
    ),
    { ...LAYER, mixer: attention({ rotary: null, blockIndexer: { ...BLOCKS, blockSize: 3, rotary: null } }) },
    dense(INDEXED),
    dense(attention({ keyValueHeads: 1, blockIndexer: { ...BLOCKS, headDim: 33, blockSize: 37, blocks: 8 } })),
    { ...LAYER, mixer: { ...latent(0), sharesIndexer: true } },
  ]),
  'state spaces of one norm or many, and attention': model([
    { ...LAYER, mixer: STATE_SPACE, always: always({}, false) },
    dense({ ...STATE_SPACE, heads: 5, groups: 1, headDim: 11, stateSize: 20, taps: 1, normGroups: 1 }),
    { ...LAYER, mixer: attention({ rotary: null }) },
    { ...LAYER, mixer: { ...STATE_SPACE, convolutionBias: false, normGroups: 4 } },
  ]),
  'experts of smaller rows': model(
    [
      { ...LAYER, mixer: attention({ rotary: null }), always: always({}, false) },
      { ...LAYER, mixer: STATE_SPACE, routedNorm: true, routerNorm: true, routedOutputNorm: true },
      dense(attention({})),
      { ...LAYER, mixer: attention({}), feedForwardOutputNorm: true, layerScale: true },
      { ...LAYER, mixer: attention({}), parallel: true, feedForwardScale: 0.5, always: always({}, true) },
    ],
    { expertHiddenSize: 18, expert: { ...plainGlu(24), bias: true }, residualScale: f(0.8) },
  ),
  'networks without a gate, and layers without networks': model(
    [
      { ...LAYER, mixer: STATE_SPACE, always: always({ activation: 'relu-squared' }, false) },
      { ...LAYER, mixer: attention({ rotary: null }), routed: null },
      { ...LAYER, mixer: STATE_SPACE, routed: null },
      { ...dense(attention({})), always: always({ activation: 'relu-squared', intermediateSize: 6 }, true) },
      { ...LAYER, mixer: { kind: 'convolution', taps: 2 } },
      { ...LAYER, mixer: latent(0), routed: null },
    ],
    { expert: { ...plainGlu(22), activation: 'relu-squared' } },
  ),
  'residual streams that each part mixes': model(
    [
      { ...LAYER, mixer: attention({}), always: always({}, true) },
      { ...dense(latent(0)), mixerOutputNorm: true },
      { ...LAYER, mixer: DELTA, routed: null },
      { ...LAYER, mixer: attention({ window: 4 }), routedOutputNorm: true, feedForwardOutputNorm: true },
    ],
    { streams: { kind: 'mixed', count: 3, epsilon: f(1e-6), rounds: 4 }, residualScale: f(0.8) },
  ),
  'residual streams without a mix, and latent attention with sinks and gates': model(
    [
      dense({ ...latent(0), sinks: true, outputGate: true }),
      { ...LAYER, mixer: { ...INDEXED, sinks: true, outputGate: true }, always: always({}, false) },
      { ...LAYER, mixer: { ...latent(14), sharesIndexer: true, sinks: true }, routedOutputNorm: true },
      { ...LAYER, mixer: { ...latent(14), outputGate: true }, mixerOutputNorm: true },
      { ...LAYER, mixer: DELTA, routed: null },
    ],
    { streams: { kind: 'added', count: 3, epsilon: f(1e-6), magnitude: f(1.7) }, residualScale: f(0.8) },
  ),
  'delta nets, short convolutions and attention': model([
    { ...LAYER, mixer: DELTA, always: always({}, true) },
    dense({ kind: 'convolution', taps: 3 }),
    { ...LAYER, mixer: attention({ outputGate: true }) },
    { ...LAYER, mixer: { ...DELTA, taps: 1 } },
    dense({ kind: 'convolution', taps: 1 }),
  ]),
  'delta nets with a decay of each channel, and latent attention that is not rotated': model([
    dense(CHANNEL_DELTA),
    { ...LAYER, mixer: { ...latent(0), rotary: null }, always: always({}, false) },
    { ...LAYER, mixer: { ...CHANNEL_DELTA, keyDim: 33, valueDim: 40, decayFloor: -5 } },
    { ...LAYER, mixer: { ...DELTA, decayWidth: 'channel', taps: 1, valueHeads: 6 } },
    { ...LAYER, mixer: { ...latent(11), rotary: null } },
    dense({ ...DELTA, lowRank: 3, gateFunction: 'sigmoid', separateConvolutions: true }),
  ]),
};
