import type {
  AttentionMixer,
  DeltaMixer,
  LatentMixer,
  LayerShape,
  MixerShape,
  ModelShape,
  PooledMixer,
  StateSpaceMixer,
} from './model-shape.js';
import {
  deltaChannels,
  deltaDecays,
  expertRowSize,
  gateRows,
  hasFeedForward,
  pooledParts,
  stateSpaceChannels,
  streamScales,
  streamValues,
  valueHeadDim,
} from './model-shape.js';

/**
 * The one table of tensor roles, of all tensors of main. native/include/odmoe/dense_roles.h has them in the same order; a test compares the two.
 * `model`: one tensor for the whole model; `layer`: one tensor a layer. Vectors are stored as FP32; matrices in the format that the device needs.
 */
export const DENSE_ROLES = {
  embedding: 'model matrix',
  finalNorm: 'model vector',
  finalNormBias: 'model vector',
  lmHead: 'model matrix',
  lmHeadBias: 'model vector',
  mixerNorm: 'layer vector',
  mixerNormBias: 'layer vector',
  mixerOutputNorm: 'layer vector',
  query: 'layer matrix',
  queryBias: 'layer vector',
  queryNorm: 'layer vector',
  key: 'layer matrix',
  keyBias: 'layer vector',
  keyNorm: 'layer vector',
  value: 'layer matrix',
  valueBias: 'layer vector',
  outputGate: 'layer matrix',
  sinks: 'layer vector',
  /** Output projection of any mixer. */
  mixerOutput: 'layer matrix',
  mixerOutputBias: 'layer vector',
  /** Latent attention: x to the low-rank query, and its norm. */
  queryLow: 'layer matrix',
  queryLowNorm: 'layer vector',
  /** Latent attention: x to [latent | rotated key]; the latent's norm. */
  latent: 'layer matrix',
  latentNorm: 'layer vector',
  /** Per head, one below another: latentSize x nopeSize (W_UK transposed), and valueSize x latentSize (W_UV). */
  keyExpansion: 'layer matrix',
  valueExpansion: 'layer matrix',
  /** An indexer: the low-rank query to its heads' queries, x to the key, the key's LayerNorm, x to one weight a head. */
  indexQuery: 'layer matrix',
  indexKey: 'layer matrix',
  indexKeyNorm: 'layer vector',
  indexKeyNormBias: 'layer vector',
  indexWeights: 'layer matrix',
  /** Attention to pools: groups of heads to their low-rank outputs, one group's outputRank rows below another's. */
  outputLow: 'layer matrix',
  /** A pool's values, gates, what is added to the gates (positions of a pool x the gates), and the norm of its entries; the same for its indexer. */
  poolValue: 'layer matrix',
  poolGate: 'layer matrix',
  poolGateBias: 'layer vector',
  poolNorm: 'layer vector',
  indexPoolValue: 'layer matrix',
  indexPoolGate: 'layer matrix',
  indexPoolGateBias: 'layer vector',
  indexPoolNorm: 'layer vector',
  /** A block indexer has x to one query for each key-value head, and to the key; both have RMS norms. */
  indexQueryNorm: 'layer vector',
  deltaQuery: 'layer matrix',
  deltaKey: 'layer matrix',
  deltaValue: 'layer matrix',
  /** x to the low-rank form of z of the gated norm, and z. */
  deltaGateLow: 'layer matrix',
  deltaGate: 'layer matrix',
  deltaBeta: 'layer matrix',
  /** x to the low-rank form of a, and a. */
  deltaDecayLow: 'layer matrix',
  deltaDecay: 'layer matrix',
  /** taps x channels: the last row weighs the current position. */
  convolution: 'layer vector',
  queryConvolution: 'layer vector',
  keyConvolution: 'layer vector',
  valueConvolution: 'layer vector',
  /** A_log and dt_bias. */
  decayLog: 'layer vector',
  decayBias: 'layer vector',
  deltaNorm: 'layer vector',
  convolutionInput: 'layer matrix',
  /** One value a channel. */
  convolutionBias: 'layer vector',
  /** A state space: x to [x of all heads | B | C | step of each head]; z of the gated norm; D of each head; the norm. */
  stateSpaceInput: 'layer matrix',
  stateSpaceGate: 'layer matrix',
  stateSpaceSkip: 'layer vector',
  stateSpaceNorm: 'layer vector',
  feedForwardNorm: 'layer vector',
  feedForwardNormBias: 'layer vector',
  routedNorm: 'layer vector',
  routerNorm: 'layer vector',
  alwaysOutputNorm: 'layer vector',
  routedOutputNorm: 'layer vector',
  feedForwardOutputNorm: 'layer vector',
  layerScale: 'layer vector',
  /** Residual streams (ModelShape.streams), before the mixer, before the feed-forward part, and behind the last layer. */
  mixerStreamMap: 'layer matrix',
  mixerStreamScale: 'layer vector',
  mixerStreamBase: 'layer vector',
  feedForwardStreamMap: 'layer matrix',
  feedForwardStreamScale: 'layer vector',
  feedForwardStreamBase: 'layer vector',
  finalStreamMap: 'model matrix',
  finalStreamScale: 'model vector',
  finalStreamBase: 'model vector',
  alwaysGate: 'layer matrix',
  alwaysUp: 'layer matrix',
  alwaysDown: 'layer matrix',
  /** 1 x hiddenSize. */
  alwaysWeight: 'layer matrix',
  /** Of layers whose experts take rows of a size of their own: expertHiddenSize x hiddenSize, and hiddenSize x expertHiddenSize. */
  expertInput: 'layer matrix',
  expertOutput: 'layer matrix',
  router: 'layer matrix',
  routerBias: 'layer vector',
  choiceBias: 'layer vector',
  expertScale: 'layer vector',
  /**
   * vocabSize x expertsPerToken: the experts of each token, by rank. The values are whole numbers of 32 bits, which stand in the place of FP32's
   * bits.
   */
  tokenExperts: 'layer vector',
  /** A draft head's: RMS norms of a token's embedding and of the hidden state beside it, and the matrix that makes one row of both. */
  tokenNorm: 'model vector',
  stateNorm: 'model vector',
  draftInput: 'model matrix',
} as const;
export type DenseRole = keyof typeof DENSE_ROLES;

/** One tensor of a model, by its tensor role. `layer` counts all layers; it is 0 for tensor roles of the whole model. */
export interface DensePlace {
  role: DenseRole;
  layer: number;
}

export function isVectorRole(role: DenseRole): boolean {
  return DENSE_ROLES[role].endsWith('vector');
}

/** Every dense tensor of a model, in the order of a forward pass; no lmHead if the embeddings are tied. */
export function* densePlaces(shape: ModelShape, tiedEmbeddings: boolean): Generator<DensePlace> {
  yield { role: 'embedding', layer: 0 };
  if (shape.draftHead !== undefined) {
    for (const role of ['tokenNorm', 'stateNorm', 'draftInput'] as const) yield { role, layer: 0 };
  }
  for (const [layer, layerShape] of shape.layers.entries()) {
    for (const role of layerRoles(layerShape, shape)) yield { role, layer };
  }
  if (shape.streams !== undefined && shape.streams.ending === undefined) {
    for (const role of FINAL_STREAM_ROLES) yield { role, layer: 0 };
  }
  yield { role: 'finalNorm', layer: 0 };
  if (shape.norm === 'layer') yield { role: 'finalNormBias', layer: 0 };
  if (!tiedEmbeddings) yield { role: 'lmHead', layer: 0 };
  if (shape.lmHeadBias) yield { role: 'lmHeadBias', layer: 0 };
}

const FINAL_STREAM_ROLES = ['finalStreamMap', 'finalStreamScale', 'finalStreamBase'] as const;
const MIXER_STREAM_ROLES = ['mixerStreamMap', 'mixerStreamScale', 'mixerStreamBase'] as const;
const FEED_FORWARD_STREAM_ROLES = ['feedForwardStreamMap', 'feedForwardStreamScale', 'feedForwardStreamBase'] as const;

function* layerRoles(layer: LayerShape, shape: ModelShape): Generator<DenseRole> {
  const inputNorms = layer.inputNorms ?? true;
  if (shape.streams !== undefined) yield* MIXER_STREAM_ROLES;
  if (inputNorms) yield 'mixerNorm';
  if (inputNorms && shape.norm === 'layer') yield 'mixerNormBias';
  yield* mixerRoles(layer.mixer);
  yield 'mixerOutput';
  if (layer.mixer.kind === 'attention' && layer.mixer.outputBias) yield 'mixerOutputBias';
  if (layer.mixerOutputNorm) yield 'mixerOutputNorm';
  if (shape.streams !== undefined && hasFeedForward(layer)) yield* FEED_FORWARD_STREAM_ROLES;
  const feedForwardNorm = inputNorms && layer.parallel !== true && hasFeedForward(layer);
  if (feedForwardNorm) yield 'feedForwardNorm';
  if (feedForwardNorm && shape.norm === 'layer') yield 'feedForwardNormBias';
  yield* routedRoles(layer, shape);
  yield* alwaysRoles(layer);
  if (layer.feedForwardOutputNorm) yield 'feedForwardOutputNorm';
  if (layer.layerScale) yield 'layerScale';
}

function* mixerRoles(mixer: MixerShape): Generator<DenseRole> {
  switch (mixer.kind) {
    case 'attention':
      yield* ['query', 'key'] as const;
      if (!mixer.keysAreValues) yield 'value';
      if (mixer.bias) yield* mixer.keysAreValues ? (['queryBias', 'keyBias'] as const) : ATTENTION_BIASES;
      if (mixer.queryKeyNorm !== 'none') yield* ['queryNorm', 'keyNorm'] as const;
      if (mixer.outputGate) yield 'outputGate';
      if (mixer.sinks) yield 'sinks';
      if (mixer.blockIndexer !== undefined)
        yield* ['indexQuery', 'indexQueryNorm', 'indexKey', 'indexKeyNorm'] as const;
      return;
    case 'latent':
      if (mixer.queryRank > 0) yield* ['queryLow', 'queryLowNorm'] as const;
      yield* ['query', 'latent', 'latentNorm', 'keyExpansion', 'valueExpansion'] as const;
      if (mixer.sinks === true) yield 'sinks';
      if (mixer.outputGate === true) yield 'outputGate';
      if (mixer.indexer === undefined) return;
      yield* ['indexQuery', 'indexKey', 'indexKeyNorm', 'indexKeyNormBias', 'indexWeights'] as const;
      if (mixer.indexer.poolPositions !== undefined) yield* ['indexPoolGate', 'indexPoolGateBias'] as const;
      return;
    case 'delta':
      yield* deltaRoles(mixer);
      return;
    case 'convolution':
      yield* ['convolutionInput', 'convolution'] as const;
      return;
    case 'state-space':
      yield* ['stateSpaceInput', 'stateSpaceGate', 'convolution'] as const;
      if (mixer.convolutionBias) yield 'convolutionBias';
      yield* ['decayLog', 'decayBias', 'stateSpaceSkip', 'stateSpaceNorm'] as const;
      return;
    case 'pooled':
      yield* ['queryLow', 'queryLowNorm', 'query', 'key', 'keyNorm', 'sinks', 'outputLow'] as const;
      if (mixer.pools === undefined) return;
      yield* ['poolValue', 'poolGate', 'poolGateBias', 'poolNorm'] as const;
      if (mixer.pools.indexer === undefined) return;
      yield* ['indexQuery', 'indexWeights'] as const;
      yield* ['indexPoolValue', 'indexPoolGate', 'indexPoolGateBias', 'indexPoolNorm'] as const;
  }
}

function* deltaRoles({ lowRank, separateConvolutions }: DeltaMixer): Generator<DenseRole> {
  yield* ['deltaQuery', 'deltaKey', 'deltaValue'] as const;
  if (lowRank !== undefined) yield 'deltaGateLow';
  yield* ['deltaGate', 'deltaBeta'] as const;
  if (lowRank !== undefined) yield 'deltaDecayLow';
  yield 'deltaDecay';
  yield* separateConvolutions === true ? SEPARATE_CONVOLUTIONS : (['convolution'] as const);
  yield* ['decayLog', 'decayBias', 'deltaNorm'] as const;
}

const SEPARATE_CONVOLUTIONS = ['queryConvolution', 'keyConvolution', 'valueConvolution'] as const;

const ATTENTION_BIASES = ['queryBias', 'keyBias', 'valueBias'] as const;

function* routedRoles(layer: LayerShape, { expertHiddenSize }: ModelShape): Generator<DenseRole> {
  const { routed, routedNorm, routerNorm, routedOutputNorm } = layer;
  if (routed === null) return;
  if (expertHiddenSize !== undefined) yield* ['expertInput', 'expertOutput'] as const;
  if (routedNorm) yield 'routedNorm';
  if (routerNorm) yield 'routerNorm';
  yield 'router';
  if (routed.bias) yield 'routerBias';
  if (routed.choiceBias) yield 'choiceBias';
  if (routed.expertScale) yield 'expertScale';
  if (routed.byToken === true) yield 'tokenExperts';
  if (routedOutputNorm) yield 'routedOutputNorm';
}

function* alwaysRoles({ always, alwaysOutputNorm }: LayerShape): Generator<DenseRole> {
  if (always === null) return;
  yield* ['alwaysGate', 'alwaysUp', 'alwaysDown'] as const;
  if (always.gated) yield 'alwaysWeight';
  if (alwaysOutputNorm) yield 'alwaysOutputNorm';
}

/** Rows and columns of a dense tensor; a vector has one row. The layer must have the tensor role. */
export function denseDimensions({ role, layer }: DensePlace, shape: ModelShape): { rows: number; columns: number } {
  const [rows, columns] = DENSE_ROLES[role].startsWith('model')
    ? modelDimensions(role, shape)
    : layerDimensions(role, requireLayer(shape, layer), shape);
  return { rows, columns };
}

function requireLayer(shape: ModelShape, layer: number): LayerShape {
  const found = shape.layers[layer];
  if (found === undefined) throw new RangeError(`layer ${layer} of a model of ${shape.layers.length}`);
  return found;
}

type Dimensions = readonly [number, number];
type Sizes = Partial<Record<DenseRole, Dimensions>>;

function modelDimensions(role: DenseRole, { vocabSize, hiddenSize, streams }: ModelShape): Dimensions {
  const count = streams?.count ?? 0;
  if (role === 'finalStreamMap') return [count, count * hiddenSize];
  if (role === 'finalStreamScale') return [1, 1];
  if (role === 'finalStreamBase') return [1, count];
  if (role === 'embedding' || role === 'lmHead') return [vocabSize, hiddenSize];
  if (role === 'draftInput') return [hiddenSize, 2 * hiddenSize];
  return [1, role === 'lmHeadBias' ? vocabSize : hiddenSize];
}

function layerDimensions(role: DenseRole, layer: LayerShape, shape: ModelShape): Dimensions {
  const hidden = shape.hiddenSize;
  const sizes = {
    ...feedForwardDimensions(layer, shape),
    ...mixerDimensions(layer.mixer, hidden),
    ...streamDimensions(shape),
  };
  // Norms and biases of the residual stream have the size of a hidden state.
  return sizes[role] ?? [1, hidden];
}

function feedForwardDimensions({ always }: LayerShape, shape: ModelShape): Sizes {
  const { hiddenSize, experts, vocabSize, expertsPerToken } = shape;
  const intermediate = always?.glu.intermediateSize ?? 0;
  const rows = always === null ? 0 : gateRows(always.glu);
  return {
    alwaysGate: [rows, hiddenSize],
    alwaysUp: [rows, hiddenSize],
    alwaysDown: [hiddenSize, intermediate],
    alwaysWeight: [1, hiddenSize],
    expertInput: [expertRowSize(shape), hiddenSize],
    expertOutput: [hiddenSize, expertRowSize(shape)],
    router: [experts, hiddenSize],
    routerBias: [1, experts],
    choiceBias: [1, experts],
    expertScale: [1, experts],
    tokenExperts: [vocabSize, expertsPerToken],
    layerScale: [1, 1],
  };
}

/** One scale for each kind of values that a map gives: three where streams are mixed, else two. */
function streamDimensions({ streams, hiddenSize }: ModelShape): Sizes {
  if (streams === undefined) return {};
  const values = streamValues(streams);
  const map = [values, streams.count * hiddenSize] as const;
  return {
    mixerStreamMap: map,
    mixerStreamScale: [1, streamScales(streams)],
    mixerStreamBase: [1, values],
    feedForwardStreamMap: map,
    feedForwardStreamScale: [1, streamScales(streams)],
    feedForwardStreamBase: [1, values],
  };
}

function mixerDimensions(mixer: MixerShape, hidden: number): Sizes {
  switch (mixer.kind) {
    case 'attention':
      return attentionDimensions(mixer, hidden);
    case 'latent':
      return latentDimensions(mixer, hidden);
    case 'delta':
      return deltaDimensions(mixer, hidden);
    case 'convolution':
      return {
        convolutionInput: [3 * hidden, hidden],
        convolution: [mixer.taps, hidden],
        mixerOutput: [hidden, hidden],
      };
    case 'state-space':
      return stateSpaceDimensions(mixer, hidden);
    case 'pooled':
      return pooledDimensions(mixer, hidden);
  }
}

function attentionDimensions(mixer: AttentionMixer, hidden: number): Sizes {
  const queries = mixer.heads * mixer.headDim;
  const keys = mixer.keyValueHeads * mixer.headDim;
  const values = mixer.keyValueHeads * valueHeadDim(mixer);
  const outputs = mixer.heads * valueHeadDim(mixer);
  const perHead = mixer.queryKeyNorm === 'head';
  const indexDim = mixer.blockIndexer?.headDim ?? 0;
  return {
    query: [queries, hidden],
    outputGate: [mixer.outputGateWidth === 'head' ? mixer.heads : outputs, hidden],
    key: [keys, hidden],
    value: [values, hidden],
    queryBias: [1, queries],
    keyBias: [1, keys],
    valueBias: [1, values],
    queryNorm: [1, perHead ? mixer.headDim : queries],
    keyNorm: [1, perHead ? mixer.headDim : keys],
    sinks: [1, mixer.heads],
    indexQuery: [mixer.keyValueHeads * indexDim, hidden],
    indexQueryNorm: [1, indexDim],
    indexKey: [indexDim, hidden],
    indexKeyNorm: [1, indexDim],
    mixerOutput: [hidden, outputs],
  };
}

function latentDimensions(mixer: LatentMixer, hidden: number): Sizes {
  const { heads, queryRank, latentSize, nopeSize, ropeSize, valueSize, indexer } = mixer;
  const index = { heads: indexer?.heads ?? 0, dim: indexer?.headDim ?? 0 };
  return {
    queryLow: [queryRank, hidden],
    queryLowNorm: [1, queryRank],
    query: [heads * (nopeSize + ropeSize), queryRank === 0 ? hidden : queryRank],
    latent: [latentSize + ropeSize, hidden],
    latentNorm: [1, latentSize],
    keyExpansion: [heads * latentSize, nopeSize],
    valueExpansion: [heads * valueSize, latentSize],
    sinks: [1, heads],
    outputGate: [heads * valueSize, hidden],
    indexQuery: [index.heads * index.dim, queryRank],
    indexKey: [index.dim, hidden],
    indexKeyNorm: [1, index.dim],
    indexKeyNormBias: [1, index.dim],
    indexWeights: [index.heads, hidden],
    indexPoolGate: [index.dim, hidden],
    indexPoolGateBias: [indexer?.poolPositions ?? 0, index.dim],
    mixerOutput: [hidden, heads * valueSize],
  };
}

function deltaDimensions(mixer: DeltaMixer, hidden: number): Sizes {
  const keys = mixer.keyHeads * mixer.keyDim;
  const values = mixer.valueHeads * mixer.valueDim;
  const decays = deltaDecays(mixer);
  const low = mixer.lowRank ?? hidden;
  return {
    deltaQuery: [keys, hidden],
    deltaKey: [keys, hidden],
    deltaValue: [values, hidden],
    deltaGateLow: [low, hidden],
    deltaGate: [values, low],
    deltaBeta: [mixer.valueHeads, hidden],
    deltaDecayLow: [low, hidden],
    deltaDecay: [decays, low],
    convolution: [mixer.taps, deltaChannels(mixer)],
    queryConvolution: [mixer.taps, keys],
    keyConvolution: [mixer.taps, keys],
    valueConvolution: [mixer.taps, values],
    decayLog: [1, mixer.valueHeads],
    decayBias: [1, decays],
    deltaNorm: [1, mixer.valueDim],
    mixerOutput: [hidden, values],
  };
}

function pooledDimensions(mixer: PooledMixer, hidden: number): Sizes {
  const { heads, headDim, queryRank, outputGroups, outputRank, pools } = mixer;
  const [queries, outputs] = [heads * headDim, outputGroups * outputRank];
  const positions = pools?.positions ?? 0;
  const index = { heads: pools?.indexer?.heads ?? 0, dim: pools?.indexer?.headDim ?? 0 };
  const [gates, indexGates] = [pooledParts(mixer) * headDim, pooledParts(mixer) * index.dim];
  return {
    queryLow: [queryRank, hidden],
    queryLowNorm: [1, queryRank],
    query: [queries, queryRank],
    key: [headDim, hidden],
    keyNorm: [1, headDim],
    sinks: [1, heads],
    outputLow: [outputs, queries / outputGroups],
    poolValue: [gates, hidden],
    poolGate: [gates, hidden],
    poolGateBias: [positions, gates],
    poolNorm: [1, headDim],
    indexQuery: [index.heads * index.dim, queryRank],
    indexWeights: [index.heads, hidden],
    indexPoolValue: [indexGates, hidden],
    indexPoolGate: [indexGates, hidden],
    indexPoolGateBias: [positions, indexGates],
    indexPoolNorm: [1, index.dim],
    mixerOutput: [hidden, outputs],
  };
}

function stateSpaceDimensions(mixer: StateSpaceMixer, hidden: number): Sizes {
  const channels = stateSpaceChannels(mixer);
  const inner = mixer.heads * mixer.headDim;
  return {
    stateSpaceInput: [channels + mixer.heads, hidden],
    stateSpaceGate: [inner, hidden],
    convolution: [mixer.taps, channels],
    convolutionBias: [1, channels],
    decayLog: [1, mixer.heads],
    decayBias: [1, mixer.heads],
    stateSpaceSkip: [1, mixer.heads],
    stateSpaceNorm: [1, inner],
    mixerOutput: [hidden, inner],
  };
}
