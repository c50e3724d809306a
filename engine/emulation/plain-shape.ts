import type { GluShape, LayerShape, ModelShape, RouterShape } from '../../shared/model/model-shape.js';

/** Sizes of a model whose layers are all alike: attention, then routed experts. */
export interface PlainSizes {
  layers: number;
  hiddenSize: number;
  intermediateSize: number;
  heads: number;
  keyValueHeads: number;
  headDim: number;
  vocabSize: number;
  experts: number;
  expertsPerToken: number;
}

const ROUTER: RouterShape = {
  score: 'softmax',
  bias: false,
  choiceBias: false,
  groups: 1,
  groupsKept: 1,
  groupScore: 'best',
  normalize: true,
  sumEpsilon: 0,
  sumFloor: 0,
  scale: 1,
  expertScale: false,
  jitter: 0,
};
const NO_EXTRAS = {
  mixerOutputNorm: false,
  routedNorm: false,
  routerNorm: false,
  alwaysOutputNorm: false,
  routedOutputNorm: false,
  feedForwardOutputNorm: false,
  layerScale: false,
} as const;
/** The FP32 number nearest to 1e-5. */
const EPSILON = Math.fround(1e-5);
const MAX_POSITIONS = 2 ** 20;

/** The shape of such a model, for counting bytes and operations: no positions are rotated. */
export function plainShape(sizes: PlainSizes): ModelShape {
  const { layers, hiddenSize, intermediateSize, heads, keyValueHeads, headDim } = sizes;
  const layer: LayerShape = {
    mixer: {
      kind: 'attention',
      heads,
      keyValueHeads,
      headDim,
      bias: false,
      outputBias: false,
      queryKeyNorm: 'none',
      normAfterRotation: false,
      valueNorm: false,
      normEpsilon: EPSILON,
      clip: 0,
      keysAreValues: false,
      outputGate: false,
      sinks: false,
      window: 0,
      scoreScale: Math.fround(1 / Math.sqrt(headDim)),
      rotary: null,
    },
    always: null,
    routed: ROUTER,
    ...NO_EXTRAS,
  };
  return {
    vocabSize: sizes.vocabSize,
    hiddenSize,
    maxPositions: MAX_POSITIONS,
    norm: 'rms',
    normEpsilon: EPSILON,
    embeddingScale: 1,
    residualScale: 1,
    lmHeadBias: false,
    logitDivisor: 1,
    logitCap: 0,
    ropes: [],
    layers: Array.from({ length: layers }, () => layer),
    expertLayers: layers,
    experts: sizes.experts,
    expertsPerToken: sizes.expertsPerToken,
    expert: plainGlu(intermediateSize),
  };
}

/** SwiGLU. */
export function plainGlu(intermediateSize: number): GluShape {
  return { intermediateSize, activation: 'sigmoid', alpha: 1, limit: 0, upOffset: 0, bias: false };
}
