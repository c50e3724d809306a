import { denseDimensions, densePlaces, isVectorRole } from '../../shared/model/dense-roles.js';
import {
  cacheRowFloats,
  deltaChannels,
  type MixerShape,
  type ModelShape,
  valueHeadDim,
} from '../../shared/model/model-shape.js';

/** Cache rows and states are FP32 on every device. */
export const FLOAT_BYTES = 4;
/** A multiplication and an addition. */
const PRODUCT_FLOP = 2;
/** Operations for one number of a delta net's state and one row: decay, read with the key, update, read with the query. */
const STATE_FLOP = 7;

/** Main's arithmetic for one layer, without its routed experts. */
export interface LayerArithmetic {
  /** Elements of its matrices. A pass reads each once, with any number of rows. Vectors are too small to count. */
  weights: number;
  /** Bytes of recurrent state that a pass reads and writes. */
  stateBytes: number;
  /** Floating-point operations of one row, without attention over the context. */
  rowFlop: number;
  /** Null: the mixer is not attention. */
  context: ContextWork | null;
}

/** Work of attention over the context. */
export interface ContextWork {
  /** Bytes of the layer's cache row for one position. */
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
  return shape.layers.map(({ mixer }, layer) => {
    const ofLayer = weights[layer] ?? 0;
    const stateBytes = recurrentStateFloats(mixer, shape.hiddenSize) * FLOAT_BYTES;
    return {
      weights: ofLayer,
      // The state is read and written.
      stateBytes: 2 * stateBytes,
      rowFlop: PRODUCT_FLOP * ofLayer + recurrenceFlop(mixer, shape.hiddenSize),
      context: contextWork(mixer, shape.hiddenSize),
    };
  });
}

/** FP32 values of the state that a mixer carries from position to position; 0: it has no state. */
export function recurrentStateFloats(mixer: MixerShape, hiddenSize: number): number {
  if (mixer.kind === 'convolution') return (mixer.taps - 1) * hiddenSize;
  if (mixer.kind !== 'delta') return 0;
  const convolution = (mixer.taps - 1) * deltaChannels(mixer);
  return convolution + mixer.valueHeads * mixer.keyDim * mixer.valueDim;
}

/** Elements of the gate, up and down matrices of one routed expert. */
export function expertWeights({ hiddenSize, expert }: ModelShape): number {
  return 3 * hiddenSize * expert.intermediateSize;
}

/** Elements of the embedding, or of the LM head. */
export function vocabularyWeights({ vocabSize, hiddenSize }: ModelShape): number {
  return vocabSize * hiddenSize;
}

function recurrenceFlop(mixer: MixerShape, hiddenSize: number): number {
  if (mixer.kind === 'convolution') return PRODUCT_FLOP * mixer.taps * hiddenSize;
  if (mixer.kind !== 'delta') return 0;
  const state = mixer.valueHeads * mixer.keyDim * mixer.valueDim;
  return PRODUCT_FLOP * mixer.taps * deltaChannels(mixer) + STATE_FLOP * state;
}

function contextWork(mixer: MixerShape, hiddenSize: number): ContextWork | null {
  if (mixer.kind === 'attention') {
    const rowPositionFlop = PRODUCT_FLOP * mixer.heads * (mixer.headDim + valueHeadDim(mixer));
    return { positionBytes: stateBytes(mixer, hiddenSize), rowPositionFlop, window: mixer.window };
  }
  if (mixer.kind !== 'latent') return null;
  // The scores use the latent and the rotated part; the sum uses the latent.
  const rowPositionFlop = PRODUCT_FLOP * mixer.heads * (2 * mixer.latentSize + mixer.ropeSize);
  return { positionBytes: stateBytes(mixer, hiddenSize), rowPositionFlop, window: 0 };
}

function stateBytes(mixer: MixerShape, hiddenSize: number): number {
  return cacheRowFloats(mixer, hiddenSize) * FLOAT_BYTES;
}
