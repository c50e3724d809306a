import { OdmoeError } from '../shared/base/errors/odmoe-error.js';
import {
  cacheRowFloats,
  expertRowSize,
  modelShapeSchema,
  mostEntries,
  pooledParts,
  recurrentStateFloats,
  stateSpaceChannels,
  valueHeadDim,
  type AttentionMixer,
  type GluShape,
  type LatentMixer,
  type LayerShape,
  type MixerShape,
  type ModelShape,
  type PooledMixer,
} from '../shared/model/model-shape.js';
import { shapeProblem } from '../shared/model/shape-problem.js';

/** A sequence has a list of blocks for each layer. */
const LARGEST_LAYERS = 1024;
/** Limits of the kernels' scratch memory. */
const LARGEST_EXPERTS = 4096;
const LARGEST_HEAD_DIM = 1024;
/** Most values of a row between two operators. A larger shape is a mistake, and sums of its sizes might not fit the kernels' integers. */
const LARGEST_ROW = 2 ** 24;
/** Most values in the state of a recurrent layer; the runtime copies the state as one row. */
const LARGEST_STATE = 2 ** 30;
/** Most experts in all layers together; the runtime stores an entry for each. */
const LARGEST_EXPERT_PLACES = 2 ** 20;

/** Throws MODEL_UNSUPPORTED for a model that contradicts itself or that the kernels cannot run, no matter where the shape comes from. */
export function checkModelShape(shape: ModelShape): void {
  const parsed = modelShapeSchema.safeParse(shape);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw unsupported(`a description that is wrong at ${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`);
  }
  const problem = shapeProblem(shape);
  if (problem !== null) throw unsupported(`a description that contradicts itself: ${problem}`);
  requireAtMost(shape.layers.length, LARGEST_LAYERS, 'layers');
  requireAtMost(shape.experts, LARGEST_EXPERTS, 'experts a layer');
  requireAtMost(shape.experts * shape.expertLayers, LARGEST_EXPERT_PLACES, 'experts in all layers');
  requireAtMost(shape.hiddenSize, LARGEST_ROW, 'values in a hidden state');
  requireAtMost((shape.streams?.count ?? 1) * shape.hiddenSize, LARGEST_ROW, 'values in the residual streams of a row');
  requireAtMost(expertRowSize(shape), LARGEST_ROW, 'values in a row of the experts');
  checkGlu(shape.expert);
  for (const [number, layer] of shape.layers.entries()) checkLayer(layer, number, shape);
}

function unsupported(what: string): OdmoeError {
  return new OdmoeError('MODEL_UNSUPPORTED', `the model has ${what}; this build cannot run it`);
}

function requireAtMost(value: number, most: number, what: string): void {
  if (value > most) throw unsupported(`${value} ${what}, of at most ${most}`);
}

function checkGlu(glu: GluShape): void {
  requireAtMost(2 * glu.intermediateSize, LARGEST_ROW, 'gate and up values of an expert');
}

function checkLayer({ mixer, always }: LayerShape, number: number, shape: ModelShape): void {
  if (always?.glu.bias === true) throw unsupported(`biases in the feed-forward network of layer ${number}`);
  if (always !== null) checkGlu(always.glu);
  requireAtMost(widestHead(mixer), LARGEST_HEAD_DIM, `dimensions in a head of layer ${number}`);
  requireAtMost(mixerRow(mixer, shape.maxPositions), LARGEST_ROW, `values in a row of the mixer of layer ${number}`);
  const state = recurrentStateFloats(mixer, shape.hiddenSize);
  requireAtMost(state, LARGEST_STATE, `values in the state of layer ${number}`);
}

function widestHead(mixer: MixerShape): number {
  switch (mixer.kind) {
    case 'attention':
      return Math.max(mixer.headDim, valueHeadDim(mixer), mixer.blockIndexer?.headDim ?? 0);
    case 'latent':
      return Math.max(
        mixer.latentSize + mixer.ropeSize,
        mixer.nopeSize + mixer.ropeSize,
        mixer.valueSize,
        mixer.indexer?.headDim ?? 0,
      );
    case 'delta':
      return Math.max(mixer.keyDim, mixer.valueDim);
    case 'convolution':
      return 1;
    case 'state-space':
      return Math.max(mixer.headDim, mixer.stateSize);
    case 'pooled':
      return Math.max(mixer.headDim, mixer.pools?.indexer?.headDim ?? 0);
  }
}

/** A row's part of an indexer, and the keys at the positions that it chooses: none where the whole context is attended to. */
function indexRow({ indexer, latentSize, ropeSize }: LatentMixer, maxPositions: number): number {
  if (indexer === undefined) return 0;
  const { heads, headDim, positions, poolPositions } = indexer;
  const chosen = positions < maxPositions ? positions + (poolPositions ?? 1) - 1 : 0;
  const ofPools = poolPositions === undefined ? 0 : 3 * headDim;
  return (heads + 1) * (headDim + 1) + ofPools + chosen * (latentSize + ropeSize);
}

/** A row's part of a block indexer, and the keys and values at the positions of the chosen blocks. */
function blockIndexRow(mixer: AttentionMixer, maxPositions: number): number {
  const { blockIndexer, heads, keyValueHeads, headDim } = mixer;
  if (blockIndexer === undefined) return 0;
  const positions = blockIndexer.blocks * blockIndexer.blockSize;
  const chosen = positions < maxPositions ? positions : 0;
  const queries = heads * headDim + (keyValueHeads + 1) * blockIndexer.headDim;
  return queries + chosen * keyValueHeads * (headDim + valueHeadDim(mixer));
}

/** A row's projections, its output, and copies of what it sees. */
function pooledRow(mixer: PooledMixer, maxPositions: number): number {
  const { heads, headDim, queryRank, outputGroups, outputRank, window, pools } = mixer;
  const { heads: indexHeads = 0, headDim: indexDim = 0 } = pools?.indexer ?? {};
  const parts = 1 + 2 * pooledParts(mixer);
  const seen = mostEntries(mixer, maxPositions) + Math.min(window, maxPositions);
  const index = (indexHeads + parts) * (indexDim + 1);
  return queryRank + (2 * heads + parts + 1 + seen) * headDim + outputGroups * outputRank + index;
}

function mixerRow(mixer: MixerShape, maxPositions: number): number {
  switch (mixer.kind) {
    case 'attention':
      return (
        2 * (mixer.heads + mixer.keyValueHeads) * Math.max(mixer.headDim, valueHeadDim(mixer)) +
        blockIndexRow(mixer, maxPositions)
      );
    case 'latent':
      return (
        mixer.queryRank +
        (mixer.heads + 1) * (mixer.latentSize + 2 * mixer.ropeSize + mixer.nopeSize + 2 * mixer.valueSize) +
        indexRow(mixer, maxPositions)
      );
    case 'delta':
      return 2 * (cacheRowFloats(mixer, 1) + mixer.valueHeads * mixer.valueDim + (mixer.lowRank ?? 0));
    case 'convolution':
      return 1;
    case 'pooled':
      return pooledRow(mixer, maxPositions);
    case 'state-space':
      return 2 * (stateSpaceChannels(mixer) + mixer.heads * (mixer.headDim + 1));
  }
}
