import type { ModelShape } from './tensor-source.js';

/** What makes a shape impossible, in words for an error message; null for a sound one. */
export function shapeProblem(shape: ModelShape): string | null {
  if (shape.heads % shape.keyValueHeads !== 0) {
    return `${shape.heads} attention heads are not a multiple of ${shape.keyValueHeads} key-value heads`;
  }
  if (shape.headDim % 2 !== 0) return `head size ${shape.headDim} is odd, and rotary embeddings need an even one`;
  if (shape.expertsPerToken > shape.experts) {
    return `${shape.expertsPerToken} experts per token are more than the ${shape.experts} experts of a layer`;
  }
  return null;
}
