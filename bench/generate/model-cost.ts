import type { ModelShape } from '../../shared/model/tensor-source.js';

const NORM_BYTES = 4;
const CACHE_BYTES = 4;

/** Weights of one layer's query, key, value and output projections. */
function attentionWeights(shape: ModelShape): number {
  const queryWidth = shape.heads * shape.headDim;
  const keyValueWidth = shape.keyValueHeads * shape.headDim;
  return shape.hiddenSize * (2 * queryWidth + 2 * keyValueWidth);
}

/** All weights that products are made with: projections, routers, every expert, and the LM head. */
export function multipliedWeights(shape: ModelShape): number {
  const experts = shape.experts * 3 * shape.hiddenSize * shape.intermediateSize;
  const layer = attentionWeights(shape) + shape.hiddenSize * shape.experts + experts;
  return shape.layers * layer + shape.vocabSize * shape.hiddenSize;
}

/** Weights of one layer that one token meets: projections, router and the experts it is given. */
function weightsPerLayer(shape: ModelShape): number {
  const expert = 3 * shape.hiddenSize * shape.intermediateSize;
  return attentionWeights(shape) + shape.hiddenSize * shape.experts + shape.expertsPerToken * expert;
}

/** Bytes that must be read to decode one token with `positions` in the KV cache, every weight once. */
export function decodeBytesPerToken(shape: ModelShape, weightBytes: number, positions: number): number {
  const lmHead = shape.vocabSize * shape.hiddenSize;
  const weights = shape.layers * weightsPerLayer(shape) + lmHead;
  const norms = (2 * shape.layers + 1) * shape.hiddenSize * NORM_BYTES;
  const cacheRow = 2 * shape.keyValueHeads * shape.headDim * CACHE_BYTES;
  return weights * weightBytes + norms + shape.layers * positions * cacheRow;
}

/** Floating-point operations (a fused multiply-add counts as two) to prefill `tokens` and give the last one's logits. */
export function prefillFlop(shape: ModelShape, tokens: number): number {
  const attended = (tokens * (tokens + 1)) / 2;
  const attention = 4 * shape.heads * shape.headDim * attended;
  return shape.layers * (2 * weightsPerLayer(shape) * tokens + attention) + 2 * shape.vocabSize * shape.hiddenSize;
}
