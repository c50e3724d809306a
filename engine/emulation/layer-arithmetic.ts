import { denseDimensions, densePlaces, isVectorRole } from '../../shared/model/dense-roles.js';
import {
  cacheRowFloats,
  deltaChannels,
  hasFeedForward,
  type LayerShape,
  type MixerShape,
  type ModelShape,
  type PooledMixer,
  recurrentStateFloats,
  stateSpaceChannels,
  streamValues,
  valueHeadDim,
} from '../../shared/model/model-shape.js';

/** Cache rows and states are FP32 on every device. */
export const FLOAT_BYTES = 4;
/** A multiplication and an addition. */
const PRODUCT_FLOP = 2;
/** Operations for one number of a delta net's state and one row: decay, read with the key, update, read with the query. */
const STATE_FLOP = 7;
/** The same for a state space: decay, update, read. */
const STATE_SPACE_FLOP = 5;

/** Main's arithmetic for one layer, without its routed experts. */
export interface LayerArithmetic {
  /** Elements of its matrices. A pass reads each once, with any number of rows. Vectors are too small to count. */
  weights: number;
  /** Bytes of recurrent state that a pass reads and writes. */
  stateBytes: number;
  /** Floating-point operations of one row, without attention over the context. */
  rowFlop: number;
  /** Empty: the mixer is not attention. An indexer's scores and attention to what it chooses are two. */
  context: readonly ContextWork[];
}

/** Work over the context: attention, or the scores of an indexer. */
export interface ContextWork {
  /** Bytes that it reads of the layer's cache row for one position. */
  positionBytes: number;
  /** Operations of one row for one position that it attends to: its score and its part of the sum, over all heads. */
  rowPositionFlop: number;
  /** Most positions that a row attends to; 0: all positions before it. */
  window: number;
}

/** The work of each layer; the result has all layers. Pure. */
export function layersWork(shape: ModelShape): LayerArithmetic[] {
  const weights = shape.layers.map(() => 0);
  for (const place of densePlaces(shape, true)) {
    if (place.role === 'embedding' || isVectorRole(place.role)) continue;
    const { rows, columns } = denseDimensions(place, shape);
    weights[place.layer] = (weights[place.layer] ?? 0) + rows * columns;
  }
  // A layer with latent attention may attend to what an earlier layer's indexer has chosen.
  let chosen = 0;
  return shape.layers.map((layerShape, layer) => {
    const { mixer } = layerShape;
    if (mixer.kind === 'latent') chosen = mixer.indexer?.positions ?? (mixer.sharesIndexer === true ? chosen : 0);
    const ofLayer = weights[layer] ?? 0;
    const stateBytes = recurrentStateFloats(mixer, shape.hiddenSize) * FLOAT_BYTES;
    return {
      weights: ofLayer,
      // The state is read and written.
      stateBytes: 2 * stateBytes,
      rowFlop: PRODUCT_FLOP * ofLayer + recurrenceFlop(mixer, shape.hiddenSize) + streamsFlop(layerShape, shape),
      context: contextWork(mixer, shape.hiddenSize, chosen),
    };
  });
}

/** Elements of the embedding, or of the LM head. */
export function vocabularyWeights({ vocabSize, hiddenSize }: ModelShape): number {
  return vocabSize * hiddenSize;
}

function recurrenceFlop(mixer: MixerShape, hiddenSize: number): number {
  if (mixer.kind === 'convolution') return PRODUCT_FLOP * mixer.taps * hiddenSize;
  if (mixer.kind === 'state-space') {
    const state = mixer.heads * mixer.headDim * mixer.stateSize;
    return PRODUCT_FLOP * mixer.taps * stateSpaceChannels(mixer) + STATE_SPACE_FLOP * state;
  }
  if (mixer.kind !== 'delta') return 0;
  const state = mixer.valueHeads * mixer.keyDim * mixer.valueDim;
  return PRODUCT_FLOP * mixer.taps * deltaChannels(mixer) + STATE_FLOP * state;
}

/** Of the sum that each part takes of the residual streams, and of the mix behind it. The balancing of the mix is too small to count. */
function streamsFlop(layer: LayerShape, { streams, hiddenSize }: ModelShape): number {
  if (streams === undefined) return 0;
  const parts = hasFeedForward(layer) ? 2 : 1;
  return PRODUCT_FLOP * parts * streamValues(streams) * hiddenSize;
}

/** Positions to which a row attends that sees so many. */
export function attendedPositions({ window }: Pick<ContextWork, 'window'>, positions: number): number {
  return window === 0 ? positions : Math.min(positions, window);
}

/** Bytes of a layer's cache row for one position. */
export function cacheRowBytes({ context }: LayerArithmetic): number {
  return context.reduce((sum, { positionBytes }) => sum + positionBytes, 0);
}

/** A row reads one entry of each pool, so that a position has a part of it. The values and gates of positions are read once, for their entry. */
function pooledWork({ heads, headDim, window, pools }: PooledMixer, rowBytes: number): ContextWork[] {
  const keyBytes = headDim * FLOAT_BYTES;
  const vectorFlop = PRODUCT_FLOP * heads * 2 * headDim;
  const ofWindow = { positionBytes: keyBytes, rowPositionFlop: vectorFlop, window };
  if (pools === undefined) return [ofWindow];
  const { positions, indexer } = pools;
  const seen = indexer === undefined ? 0 : indexer.entries * positions;
  const indexBytes = (indexer?.headDim ?? 0) * FLOAT_BYTES;
  const others = rowBytes - keyBytes - indexBytes / positions;
  const entries = { positionBytes: others, rowPositionFlop: vectorFlop / positions, window: seen };
  if (indexer === undefined) return [ofWindow, entries];
  const scoreFlop = (PRODUCT_FLOP * indexer.heads * indexer.headDim) / positions;
  return [ofWindow, entries, { positionBytes: indexBytes / positions, rowPositionFlop: scoreFlop, window: 0 }];
}

/** `chosen`: positions that an indexer has chosen for the layer; 0: it attends to all. */
function contextWork(mixer: MixerShape, hiddenSize: number, chosen: number): ContextWork[] {
  const rowBytes = cacheRowFloats(mixer, hiddenSize) * FLOAT_BYTES;
  if (mixer.kind === 'attention') {
    const rowPositionFlop = PRODUCT_FLOP * mixer.heads * (mixer.headDim + valueHeadDim(mixer));
    const blocks = mixer.blockIndexer;
    if (blocks === undefined) return [{ positionBytes: rowBytes, rowPositionFlop, window: mixer.window }];
    const keyBytes = blocks.headDim * FLOAT_BYTES;
    const scoreFlop = PRODUCT_FLOP * mixer.keyValueHeads * blocks.headDim;
    return [
      { positionBytes: keyBytes, rowPositionFlop: scoreFlop, window: 0 },
      { positionBytes: rowBytes - keyBytes, rowPositionFlop, window: blocks.blocks * blocks.blockSize },
    ];
  }
  if (mixer.kind === 'pooled') return pooledWork(mixer, rowBytes);
  if (mixer.kind !== 'latent') return [];
  const { indexer } = mixer;
  // A row reads one key of each pool, so that a position has a part of it. The gates of positions are read once, for their key.
  const pool = indexer?.poolPositions ?? 1;
  const indexBytes = ((indexer?.headDim ?? 0) * FLOAT_BYTES) / pool;
  // The scores use the latent and the rotated part; the sum uses the latent.
  const rowPositionFlop = PRODUCT_FLOP * mixer.heads * (2 * mixer.latentSize + mixer.ropeSize);
  const attention = { positionBytes: rowBytes - indexBytes, rowPositionFlop, window: chosen };
  if (indexer === undefined) return [attention];
  const scoreFlop = (PRODUCT_FLOP * indexer.heads * indexer.headDim) / pool;
  return [{ positionBytes: indexBytes, rowPositionFlop: scoreFlop, window: 0 }, attention];
}
