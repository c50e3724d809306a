import {
  attendedPositions,
  type ContextWork,
  layersWork,
  vocabularyWeights,
} from '../../engine/emulation/layer-arithmetic.js';
import { expertMatrixValues, type ModelShape } from '../../shared/model/model-shape.js';

/** Number of weights in products: dense layers, LM head, and `experts` experts in each layer with experts. */
function weightsWith(shape: ModelShape, experts: number): number {
  const dense = layersWork(shape).reduce((sum, { weights }) => sum + weights, 0);
  return dense + shape.expertLayers * experts * expertMatrixValues(shape) + vocabularyWeights(shape);
}

/** Number of all weights in products: projections, routers, every expert, and the LM head. */
export function multipliedWeights(shape: ModelShape): number {
  return weightsWith(shape, shape.experts);
}

/** Bytes that are read to decode one token with `positions` in the cache; every weight is read once. */
export function decodeBytesPerToken(shape: ModelShape, weightBytes: number, positions: number): number {
  const states = layersWork(shape).reduce((sum, { stateBytes, context }) => {
    const read = context.map((work) => attendedPositions(work, positions) * work.positionBytes);
    return read.reduce((bytes, more) => bytes + more, sum + stateBytes);
  }, 0);
  return weightsWith(shape, shape.expertsPerToken) * weightBytes + states;
}

/** Floating-point operations (a fused multiply-add counts as two) to prefill `tokens` and compute the last one's logits. */
export function prefillFlop(shape: ModelShape, tokens: number): number {
  const experts = shape.expertLayers * shape.expertsPerToken * 2 * expertMatrixValues(shape);
  const layers = layersWork(shape).reduce((sum, { rowFlop, context }) => {
    const attention = context.map((work) => attendedPairs(tokens, work) * work.rowPositionFlop);
    return attention.reduce((flop, more) => flop + more, sum + tokens * rowFlop);
  }, 0);
  return layers + tokens * experts + 2 * vocabularyWeights(shape);
}

/** Number of pairs of a row and a position that it sees. */
function attendedPairs(tokens: number, work: ContextWork): number {
  const full = attendedPositions(work, tokens);
  return (full * (full + 1)) / 2 + (tokens - full) * full;
}
