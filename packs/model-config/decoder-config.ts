import { DenseModelError } from './refused-model.js';
import { type DraftHeadNames, draftHeadShape } from './draft-heads.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { checkpointLayout, type TensorNames } from './checkpoint-layout.js';
import type { ConfigReader } from './config-reader.js';
import type { ModelConfig } from './model-family.js';
import type { ReadRope } from './rope-config.js';
import {
  type AttentionMixer,
  type GluShape,
  type LayerShape,
  type MixerShape,
  type ModelShape,
  modelShapeSchema,
  type RotaryShape,
  type RouterShape,
} from '../../shared/model/model-shape.js';
import { shapeProblem } from '../../shared/model/shape-problem.js';

/** Sizes of attention that transformers uses if they are absent; null: the size follows from the others. */
interface AttentionDefaults {
  keyValueHeads?: number | null;
  headDim?: number | null;
}

/** Reads attention in its usual form. `own`: fields in which a family differs. */
export function readAttention(
  config: ConfigReader,
  own: Partial<AttentionMixer> = {},
  defaults: AttentionDefaults = {},
): AttentionMixer {
  const heads = config.size('num_attention_heads');
  const headDim = own.headDim ?? readHeadDim(config, heads, defaults.headDim ?? null);
  return {
    kind: 'attention',
    heads,
    keyValueHeads: readKeyValueHeads(config, heads, defaults.keyValueHeads ?? null),
    headDim,
    bias: false,
    outputBias: false,
    queryKeyNorm: 'none',
    normAfterRotation: false,
    valueNorm: false,
    normEpsilon: own.normEpsilon ?? readNormEpsilon(config),
    clip: 0,
    keysAreValues: false,
    outputGate: false,
    sinks: false,
    window: 0,
    scoreScale: inverseRoot(headDim),
    rotary: rotateHalves(0),
    ...own,
  };
}

/** null in config.json: as many key-value heads as heads. */
function readKeyValueHeads(config: ConfigReader, heads: number, fallback: number | null): number {
  const key = 'num_key_value_heads';
  return config.sizeOr(config.isNull(key) ? heads : (fallback ?? heads), key);
}

function readHeadDim(config: ConfigReader, heads: number, fallback: number | null): number {
  const headDim = config.sizeOr(config.isNull('head_dim') ? null : fallback, 'head_dim');
  if (headDim !== null) return headDim;
  const hidden = config.size('hidden_size');
  if (hidden % heads === 0) return hidden / heads;
  throw config.corrupt(
    `hidden_size ${hidden} is not a multiple of num_attention_heads ${heads} and there is no head_dim`,
  );
}

/** 1 / sqrt(size), as FP32 computes it. */
export function inverseRoot(size: number): number {
  return Math.fround(1 / Math.fround(Math.sqrt(size)));
}

export function readNormEpsilon(config: ConfigReader, fallback = 1e-6): number {
  return Math.fround(config.positiveOr(fallback, 'rms_norm_eps', 'norm_eps', 'layer_norm_eps'));
}

export function rotateHalves(rope: number): RotaryShape {
  return { rope, pairing: 'halves', offset: 0 };
}

export function rotateNeighbours(rope: number): RotaryShape {
  return { rope, pairing: 'neighbours', offset: 0 };
}

/** Reads a SwiGLU, which most families have. Its size is the value of the first key that is present, times `factor`. */
export function readSwiglu(config: ConfigReader, keys: readonly string[], factor = 1): GluShape {
  config.only('hidden_act', ['silu', 'swish'], 'silu');
  const intermediateSize = config.size(...keys) * factor;
  return { intermediateSize, activation: 'sigmoid', alpha: 1, limit: 0, upOffset: 0, bias: false };
}

/** Reads the always part of a layer: a SwiGLU of `copies` times the size that a key gives; null if `copies` is 0. */
export function readAlways(config: ConfigReader, key: string, copies = 1): LayerShape['always'] {
  return copies === 0 ? null : { glu: readSwiglu(config, [key], copies), gated: false };
}

/** A router with softmax over all experts and without renormalization. `own`: fields in which a family differs. */
export function routerOf(own: Partial<RouterShape>): RouterShape {
  return {
    score: 'softmax',
    bias: false,
    choiceBias: false,
    groups: 1,
    groupsKept: 1,
    groupScore: 'best',
    normalize: false,
    sumEpsilon: 0,
    sumFloor: 0,
    scale: 1,
    expertScale: false,
    jitter: 0,
    ...own,
  };
}

export function layerOf(mixer: MixerShape, own: Partial<LayerShape>): LayerShape {
  return {
    mixer,
    mixerOutputNorm: false,
    always: null,
    routed: null,
    routedNorm: false,
    routerNorm: false,
    alwaysOutputNorm: false,
    routedOutputNorm: false,
    feedForwardOutputNorm: false,
    layerScale: false,
    ...own,
  };
}

/**
 * Reads layers with one mixer. A layer marked in `sparse` has experts and `shared` shared experts; any other has a dense network. Keys:
 * moe_intermediate_size, intermediate_size.
 */
export function readSharedOrDense(
  config: ConfigReader,
  sparse: readonly boolean[],
  { mixer, routed, shared }: { mixer: MixerShape; routed: RouterShape; shared: number },
): LayerShape[] {
  const beside = readAlways(config, 'moe_intermediate_size', shared);
  const allSparse = sparse.every((hasExperts) => hasExperts);
  if (allSparse) config.idle('intermediate_size');
  const dense = allSparse ? null : readAlways(config, 'intermediate_size');
  return sparse.map((hasExperts) => layerOf(mixer, hasExperts ? { routed, always: beside } : { always: dense }));
}

/** Parts of a shape that a family gives; the rest is read or has the usual value. */
export type DecoderParts = Pick<ModelShape, 'layers' | 'expert'> & { ropes: readonly ReadRope[] } & Partial<
    Omit<ModelShape, 'ropes'>
  >;

/** Reads the shape of a decoder; an impossible one is refused. */
export function readDecoder(config: ConfigReader, { ropes, ...parts }: DecoderParts): ModelShape {
  if (parts.layers.every(({ routed }) => routed === null)) throw withoutExperts(config);
  const shape: ModelShape = {
    vocabSize: config.size('vocab_size'),
    hiddenSize: config.size('hidden_size'),
    maxPositions: Math.min(
      parts.maxPositions ?? config.size('max_position_embeddings'),
      ...ropes.map(({ maxPositions }) => maxPositions),
    ),
    norm: 'rms',
    normEpsilon: parts.normEpsilon ?? readNormEpsilon(config),
    embeddingScale: 1,
    residualScale: 1,
    lmHeadBias: false,
    logitDivisor: 1,
    logitCap: 0,
    ropes: ropes.map(({ rope }) => rope),
    expertLayers: parts.layers.filter(({ routed }) => routed !== null).length,
    ...parts,
    experts: parts.experts ?? readExperts(config),
    expertsPerToken: parts.expertsPerToken ?? readExpertsPerToken(config),
  };
  const parsed = modelShapeSchema.safeParse(shape);
  const [issue] = parsed.success ? [] : parsed.error.issues;
  if (issue !== undefined) throw config.corrupt(`${issue.path.join('.')} would be wrong: ${issue.message}`);
  const problem = shapeProblem(shape);
  if (problem !== null) throw config.corrupt(problem);
  return shape;
}

/** The model's family has experts, but it has none. */
export function withoutExperts({ context }: ConfigReader, because = ''): DenseModelError {
  return new DenseModelError(context.path, `${because}no layer of the model has experts`);
}

/** Number of experts of a layer, under any of the families' keys. */
function readExperts(config: ConfigReader): number {
  return config.size('num_experts', 'num_local_experts', 'n_routed_experts', 'moe_num_experts');
}

function readExpertsPerToken(config: ConfigReader): number {
  return config.size('num_experts_per_tok', 'experts_per_token', 'moe_k', 'top_k_experts');
}

/** Values that transformers uses if config.json has none. */
interface ModelDefaults {
  tied?: boolean;
  /** Token that ends an answer; null: none. */
  eos: number | null;
  /** Null or left out: the checkpoints have no head that drafts. */
  draftHead?: DraftHeadNames | null;
}

/** The contents of config.json, from a shape and the names of its tensors. Several names: one for each form in which the experts may be stored. */
export function modelConfig(
  config: ConfigReader,
  shape: ModelShape,
  names: TensorNames | readonly [TensorNames, ...TensorNames[]],
  { tied = false, eos, draftHead = null }: ModelDefaults,
): ModelConfig {
  const { quantization } = config.context;
  const tiedEmbeddings = config.flagOr(tied, 'tie_word_embeddings', 'tie_embedding');
  const shared = {
    eosTokenIds: config.tokenIds('eos_token_id'),
    usualEosTokenIds: eos === null || config.isNull('eos_token_id') ? [] : [eos],
    quantization,
  };
  const model = { ...shared, shape, tiedEmbeddings, ...layoutsOf(shape, [names].flat(), tiedEmbeddings) };
  if (draftHead === null) return model;
  const headShape = draftHeadShape(shape, draftHead);
  return {
    ...model,
    draftHead: { ...shared, shape: headShape, tiedEmbeddings: false, ...layoutsOf(headShape, draftHead.names, false) },
  };
}

function layoutsOf(
  shape: ModelShape,
  names: readonly TensorNames[],
  tiedEmbeddings: boolean,
): Pick<ModelConfig, 'layout' | 'otherLayouts'> {
  const [layout, ...otherLayouts] = names.map((form) => checkpointLayout(shape, form, tiedEmbeddings));
  return { layout: requirePresent(layout, 'a family names its tensors in one form at least.'), otherLayouts };
}
