import { expertWeights, layersWork, vocabularyWeights } from '../../engine/emulation/layer-arithmetic.js';
import type { ModelShape } from '../../shared/model/model-shape.js';

/** Weights that products are made with: dense layers, LM head and, in each layer that has some, so many experts. */
function weightsWith(shape: ModelShape, experts: number): number {
  const dense = layersWork(shape).reduce((sum, { weights }) => sum + weights, 0);
  return dense + shape.expertLayers * experts * expertWeights(shape) + vocabularyWeights(shape);
}

/** All weights that products are made with: projections, routers, every expert, and the LM head. */
export function multipliedWeights(shape: ModelShape): number {
  return weightsWith(shape, shape.experts);
}

/** Bytes that must be read to decode one token with `positions` in the cache, every weight once. */
export function decodeBytesPerToken(shape: ModelShape, weightBytes: number, positions: number): number {
  const kept = layersWork(shape).reduce((sum, { stateBytes, context }) => {
    if (context === null) return sum + stateBytes;
    const seen = context.window === 0 ? positions : Math.min(positions, context.window);
    return sum + stateBytes + seen * context.positionBytes;
  }, 0);
  return weightsWith(shape, shape.expertsPerToken) * weightBytes + kept;
}

/** Floating-point operations (a fused multiply-add counts as two) to prefill `tokens` and give the last one's logits. */
export function prefillFlop(shape: ModelShape, tokens: number): number {
  const experts = shape.expertLayers * shape.expertsPerToken * 2 * expertWeights(shape);
  const layers = layersWork(shape).reduce((sum, { rowFlop, context }) => {
    if (context === null) return sum + tokens * rowFlop;
    return sum + tokens * rowFlop + attendedPositions(tokens, context.window) * context.rowPositionFlop;
  }, 0);
  return layers + tokens * experts + 2 * vocabularyWeights(shape);
}

/** Pairs of a row and a position that it sees. */
function attendedPositions(tokens: number, window: number): number {
  const full = window === 0 ? tokens : Math.min(tokens, window);
  return (full * (full + 1)) / 2 + (tokens - full) * full;
}
