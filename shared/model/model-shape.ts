import { z } from 'zod';

/**
 * A model as data, for every daemon, planner and backend. A family (packs/families) makes it from a checkpoint's config.json; after that no code
 * depends on the family. Sizes are in elements. native/include/odmoe/model_shape.h has the same in C++.
 */

/** Most positions that a convolution along the positions takes in. */
export const MOST_TAPS = 64;

/** Largest size. A tensor of more values could not be addressed, so a larger size in a file is an error. */
export const SIZE_LIMIT = 2 ** 31 - 1;
const size = z.int().min(1).max(SIZE_LIMIT);
const count = z.int().min(0).max(SIZE_LIMIT);
/** Most residual streams: the kernels hold one value of each in registers. */
export const MOST_STREAMS = 8;
/** Most rounds that balance the mix of streams. */
export const MOST_ROUNDS = 1000;
/** Operators compute with FP32 numbers on every device. */
const float = z.number().refine((value) => Math.fround(value) === value, 'expected a number that FP32 holds');
const notNegative = float.refine((value) => value >= 0, 'expected a number of at least 0');
const positiveFloat = float.refine((value) => value > 0, 'expected a number above 0');

/**
 * A gated linear unit: down(act(gate x) * up x). If there is a limit, g = min(gate x, limit) and u = clamp(up x, -limit, limit). sigmoid: g *
 * sigmoid(alpha g) * (u + upOffset) (SwiGLU: alpha 1, offset 0); tanh: GELU's tanh form of g, times u. With a limit on the activation, g is gate x,
 * and the limit is that of the first factor, g * sigmoid(alpha g) or GELU's.
 *
 * relu-squared: there is no gate, and the unit is down(max(0, up x)^2). The rows of up then stand in the two matrices gate and up, the first half
 * of them in gate, so that an expert always has three matrices. It has no limit and no bias.
 */
export const gluSchema = z.strictObject({
  intermediateSize: size,
  activation: z.enum(['sigmoid', 'tanh', 'relu-squared']),
  alpha: float,
  /** 0: no limit. */
  limit: notNegative,
  /** An absent field means inputs. */
  limitOn: z.enum(['inputs', 'activation']).optional(),
  upOffset: float,
  /** gate, up and down each have a bias. */
  bias: z.boolean(),
});

/** The rotated dimensions of a head: they begin at dimension `offset`, and there are twice as many as the rope has frequencies. */
const rotarySchema = z.strictObject({
  /** Index into ModelShape.ropes. */
  rope: count,
  /** halves: (i, i + n); neighbours: (2 i, 2 i + 1). */
  pairing: z.enum(['halves', 'neighbours']),
  offset: count,
});

/**
 * MiniMax-M3's indexer: positions stand in blocks of `blockSize`, and the heads of a key-value head see only `blocks` of them, those of the greatest
 * query . key, of the block's keys up to the row's own position. It has one query for each key-value head, and one key, which the cache holds. Both
 * pass RMS norms, and are rotated.
 */
const blockIndexerSchema = z.strictObject({
  headDim: size,
  blockSize: size,
  /** A row in one of the first `blocks` blocks sees all. */
  blocks: size,
  /** The last ones up to the row's own block, which are always among the chosen ones. */
  localBlocks: count,
  normEpsilon: positiveFloat,
  /** null: not rotated. */
  rotary: rotarySchema.nullable(),
});

const attentionSchema = z.strictObject({
  kind: z.literal('attention'),
  heads: size,
  keyValueHeads: size,
  headDim: size,
  /** Dimensions of a value head. Absent: headDim. */
  valueDim: size.optional(),
  /** Factor of the values, by which the output of attention is multiplied. Absent: 1. */
  valueScale: positiveFloat.optional(),
  /** Query, key and value have biases. */
  bias: z.boolean(),
  outputBias: z.boolean(),
  /** RMS norms of query and key: each head, or all heads at once. */
  queryKeyNorm: z.enum(['none', 'head', 'all']),
  /** The norms run after the rotation, not before it. */
  normAfterRotation: z.boolean(),
  /** RMS norm of each head of the values, without a weight. */
  valueNorm: z.boolean(),
  /** Epsilon of the norms above. */
  normEpsilon: positiveFloat,
  /** Query, key and value are limited to +- this before anything else, but after a norm of all heads. 0: no limit. */
  clip: notNegative,
  /** There is no value projection: values are the keys before norm and rotation. */
  keysAreValues: z.boolean(),
  /** The output of attention is multiplied by act(outputGate x) before the output projection. */
  outputGate: z.boolean(),
  /** act. An absent field means sigmoid. */
  outputGateFunction: z.enum(['sigmoid', 'softplus']).optional(),
  /** One gate for each element (which an absent field means) or for each head. */
  outputGateWidth: z.enum(['element', 'head']).optional(),
  /** Each head has one more logit in the denominator of its softmax. */
  sinks: z.boolean(),
  /** Position p sees (p - window, p]; 0: all positions up to p. */
  window: count,
  /** Factor of the scores. */
  scoreScale: positiveFloat,
  /** null: not rotated. */
  rotary: rotarySchema.nullable(),
  /** Absent: all positions that the window lets through are seen. */
  blockIndexer: blockIndexerSchema.optional(),
});

/**
 * DeepSeek-V3.2's lightning indexer: a row sees only the `positions` best positions up to its own, by the sum over heads of weight * max(0, query .
 * key). Queries are made of the normed low-rank ones; a key, which the cache holds, passes a LayerNorm. Both are rotated.
 *
 * With pools (GLM-5-Next), positions stand in pools of `poolPositions`, of which a row sees the best complete ones, `positions` positions in all, and
 * the positions of its own pool where that is not complete. The key of a pool is, per channel, a softmax over its positions by indexPoolGate x +
 * indexPoolGateBias (a row of it for each place in a pool), of the positions' keys.
 */
const indexerSchema = z.strictObject({
  heads: size,
  headDim: size,
  /** A row with no more positions than this sees all. */
  positions: size,
  normEpsilon: positiveFloat,
  /** null: not rotated. */
  rotary: rotarySchema.nullable(),
  /** Positions of a pool; `positions` is a multiple. Absent: positions are chosen by themselves. */
  poolPositions: size.optional(),
});

/**
 * Latent attention (MLA) in its absorbed form: one key-value head whose key is [norm(latent) | rotated part], and whose value is the
 * latent. A query is [keyExpansion^T of its first nopeSize dimensions | its rotated part].
 */
const latentSchema = z.strictObject({
  kind: z.literal('latent'),
  heads: size,
  /** Rank of the queries' low-rank form; 0: they are not low-rank. */
  queryRank: count,
  latentSize: size,
  nopeSize: size,
  ropeSize: count,
  valueSize: size,
  /** Epsilon of the latents' norms. */
  normEpsilon: positiveFloat,
  scoreScale: positiveFloat,
  /** `offset` counts within the rotated part, and is 0. null: that part is not rotated. */
  rotary: rotarySchema.nullable(),
  /** Absent: all positions up to the row's own are seen, but for `sharesIndexer`. */
  indexer: indexerSchema.optional(),
  /** A row sees the positions that it saw in the last layer with an indexer. */
  sharesIndexer: z.literal(true).optional(),
  /** Each head has one more logit in the denominator of its softmax. Absent: none has. */
  sinks: z.literal(true).optional(),
  /** The values of all heads are multiplied by sigmoid(outputGate x) before the output projection, one gate for each element. Absent: they are not. */
  outputGate: z.literal(true).optional(),
});

/**
 * Gated delta net, as the sequential recurrence. With a decay of each channel, separate convolutions, a rank and a sigmoid gate it is Kimi delta
 * attention.
 */
const deltaSchema = z.strictObject({
  kind: z.literal('delta'),
  keyHeads: size,
  valueHeads: size,
  keyDim: size,
  valueDim: size,
  /** Taps of the causal convolution. */
  taps: size.max(MOST_TAPS),
  /** Epsilon of the gated norm. */
  normEpsilon: positiveFloat,
  /**
   * The key head of a value head. grouped, which an absent field means: value heads of one key head stand together; tiled: value head h has key
   * head h mod keyHeads.
   */
  valueHeadOrder: z.enum(['grouped', 'tiled']).optional(),
  /** Values of the decayLog tensor: A_log, whose exponential is the rate (logarithm, which an absent field means), or the rate itself. */
  decayForm: z.enum(['logarithm', 'rate']).optional(),
  /** One decay for each head (which an absent field means) or for each channel of its key. */
  decayWidth: z.enum(['head', 'channel']).optional(),
  /**
   * The logarithm of a channel's decay is decayFloor * sigmoid(rate * (deltaDecay x + decayBias)), and so never below decayFloor. Absent: it is
   * -rate * softplus(deltaDecay x + decayBias).
   */
  decayFloor: float.refine((value) => value < 0, 'expected a number below 0').optional(),
  /** Rank of the low-rank forms of deltaDecay and deltaGate. Absent: they are not low-rank. */
  lowRank: size.optional(),
  /** Function of the gate by which the normed output is multiplied. An absent field means silu. */
  gateFunction: z.enum(['silu', 'sigmoid']).optional(),
  /** Queries, keys and values have a convolution tensor each. Absent: one tensor for all. */
  separateConvolutions: z.literal(true).optional(),
});

/** Gated short convolution: out(C * conv(B * x)), [B | C | x] = convolutionInput. */
const convolutionSchema = z.strictObject({ kind: z.literal('convolution'), taps: size.max(MOST_TAPS) });

/**
 * State space (Mamba-2), as the sequential recurrence. [x of all heads | B of all groups | C of all groups] pass one causal convolution and silu;
 * head h has group h / (heads / groups). Its output is (state * C + skip * x) * silu(stateSpaceGate x), and then an RMS norm.
 */
const stateSpaceSchema = z.strictObject({
  kind: z.literal('state-space'),
  heads: size,
  groups: size,
  headDim: size,
  /** Values of the state for each dimension of a head: the size of B and C. */
  stateSize: size,
  /** Taps of the causal convolution. */
  taps: size.max(MOST_TAPS),
  convolutionBias: z.boolean(),
  /** Equal parts of the output that are normed by themselves. */
  normGroups: size,
  normEpsilon: positiveFloat,
});

/**
 * Entries of complete pools of positions, which a row sees beside its window: per channel a softmax over the pool's positions by poolGate x + poolGateBias
 * (a row of it for each place in a pool), of poolValue x; then poolNorm, and the rotation of the pool's first position.
 */
const poolsSchema = z.strictObject({
  /** Positions of a pool. */
  positions: size,
  /**
   * An entry is also made of the pool before its own, in the same softmax. poolValue and poolGate then have two parts: the first for the pool behind
   * a position's own, the second for its own.
   */
  overlaps: z.boolean(),
  /**
   * Of more entries than `entries` a row sees only the best, by the sum over heads of weight * max(0, query . key). Keys are entries of pools of
   * their own, queries are made of the normed low-rank ones; both are rotated. Absent: a row sees all entries.
   */
  indexer: z.strictObject({ heads: size, headDim: size, entries: size, rotary: rotarySchema }).optional(),
});

/**
 * Attention to the last positions and to entries of pools of all earlier ones (DeepSeek-V4). It has one key-value head, whose values are its keys,
 * low-rank queries, which are divided by their root mean squares, and a sink a head. The rotation of its output is undone, and groups of heads pass
 * matrices of their own (outputLow) before the output projection.
 */
const pooledSchema = z.strictObject({
  kind: z.literal('pooled'),
  heads: size,
  headDim: size,
  queryRank: size,
  outputGroups: size,
  /** Dimensions of a group's output. */
  outputRank: size,
  /** Position p sees (p - window, p]. */
  window: size,
  /** Epsilon of all its norms. */
  normEpsilon: positiveFloat,
  scoreScale: positiveFloat,
  rotary: rotarySchema,
  /** Absent: a row sees its window alone. */
  pools: poolsSchema.optional(),
});

const mixerSchema = z.discriminatedUnion('kind', [
  attentionSchema,
  latentSchema,
  deltaSchema,
  convolutionSchema,
  stateSpaceSchema,
  pooledSchema,
]);

/** The rule by which a row's experts are chosen and weighed. Numbers of experts and of experts per token are fields of the model. */
const routerSchema = z.strictObject({
  /** sparsemixer: the rule of Phi-3.5-MoE, which chooses two experts one after the other. */
  score: z.enum(['softmax', 'sigmoid', 'sparsemixer', 'sqrt-softplus']),
  /** The linear map has a bias. */
  bias: z.boolean(),
  /** A bias is added to the scores for the choice only. */
  choiceBias: z.boolean(),
  /** Only experts of the best `groupsKept` router groups can be chosen. 1: no router groups. */
  groups: size,
  groupsKept: size,
  /** The score of a router group: that of its best expert, or the sum of its best two. */
  groupScore: z.enum(['best', 'best-two']),
  /** Weights are divided by max(sum + sumEpsilon, sumFloor). */
  normalize: z.boolean(),
  sumEpsilon: notNegative,
  sumFloor: notNegative,
  /** Factor of the weights, applied last. */
  scale: positiveFloat,
  /** The weights are also multiplied by one number for each expert. */
  expertScale: z.boolean(),
  /** Jitter of sparsemixer. */
  jitter: notNegative,
  /** Logits become cap * tanh(logit / cap) before anything else. 0, or an absent field: no cap. */
  logitCap: notNegative.optional(),
  /** A row's experts are those that the table tokenExperts names for its token, and the scores only weigh them. Absent: scores choose. */
  byToken: z.literal(true).optional(),
});

/**
 * h += scale * mixer(mixerNorm(h)); then h += scale * (routed(feedForwardNorm(h)) + always(feedForwardNorm(h))). The flags name norms and
 * weights that some layers have in addition. A layer with neither experts nor an always part ends behind its mixer, and has no feedForwardNorm.
 */
const layerSchema = z.strictObject({
  mixer: mixerSchema,
  /** False: mixerNorm and feedForwardNorm are left out, and mixer and networks take h itself. An absent field means true. */
  inputNorms: z.boolean().optional(),
  /**
   * A parallel block: there is no feedForwardNorm, and the networks take mixerNorm(h) of the h before the mixer, as the mixer does. An absent field
   * means false.
   */
  parallel: z.boolean().optional(),
  /** Factor of the networks' output beside residualScale: 1/2 makes an average of two. Absent: 1. */
  feedForwardScale: positiveFloat.optional(),
  /** RMS norm of the mixer's output. */
  mixerOutputNorm: z.boolean(),
  /** A GLU that every row passes; `gated`: its output is multiplied by sigmoid(alwaysWeight x). */
  always: z.strictObject({ glu: gluSchema, gated: z.boolean() }).nullable(),
  routed: routerSchema.nullable(),
  /** The limit of the experts' GLU in this layer, in place of ModelShape.expert's. Absent: that one. */
  expertLimit: notNegative.optional(),
  /** Experts take routedNorm(h), the router takes routerNorm(h), in place of feedForwardNorm(h). */
  routedNorm: z.boolean(),
  routerNorm: z.boolean(),
  /** RMS norms of the output of `always`, of the routed experts' weighted sum, and of the sum of both. */
  alwaysOutputNorm: z.boolean(),
  routedOutputNorm: z.boolean(),
  feedForwardOutputNorm: z.boolean(),
  /** h is multiplied by one number at the layer's end. */
  layerScale: z.boolean(),
});

const ropeSchema = z.strictObject({
  /** Angles per position, FP32, one for each pair; 0: a pair that is not rotated. */
  frequencies: z.array(float).min(1).max(1024),
  /** Factor of cosine and sine. */
  scale: positiveFloat,
});

/** Behind the last layer, h is the mean of all streams, and the model has no tensors for it. Absent: a weighted sum. */
const streamsEnding = z.literal('mean').optional();

/**
 * Residual streams. mixed: each part mixes them (manifold-constrained hyper-connections, DeepSeek-V4). The residual is `count` rows h_i, which begin as copies
 * of the embedding; `base`, `map` and `scale` are tensors of the part. f = map x (all h_i one behind another, divided by the root mean square of all of
 * them), of count + count + count^2 values: pre_i = sigmoid(f_i scale_0 + base_i) + epsilon, post_k = 2 sigmoid(f_(count + k) scale_1 + base), and mix =
 * softmax of each row of the rest (times scale_2, plus base) + epsilon, divided by its sums of columns, then rounds - 1 times by those of rows and those
 * of columns (each sum + epsilon). A mixer or a feed-forward part takes sum of pre_i h_i in the place of h, and of its output, h_k becomes post_k output +
 * sum over j of mix_(j, k) h_j. Behind the last layer, h is the sum of pre_i h_i by tensors of the model, of `count` values.
 *
 * added: nothing is mixed (HY4). f has count + count values, post_k = magnitude sigmoid(f_(count + k) scale_1 + base) + epsilon, and h_k becomes h_k +
 * post_k output. All else is as above.
 */
const streamsSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('mixed'),
    count: size.min(2).max(MOST_STREAMS),
    epsilon: positiveFloat,
    rounds: size.max(MOST_ROUNDS),
    ending: streamsEnding,
  }),
  z.strictObject({
    kind: z.literal('added'),
    count: size.min(2).max(MOST_STREAMS),
    epsilon: positiveFloat,
    magnitude: positiveFloat,
    ending: streamsEnding,
  }),
]);

export const modelShapeSchema = z.strictObject({
  vocabSize: size,
  hiddenSize: size,
  maxPositions: size,
  /** Norms of hidden states: root mean square, or LayerNorm with or without a bias. */
  norm: z.enum(['rms', 'layer', 'layer-without-bias']),
  normEpsilon: positiveFloat,
  embeddingScale: float,
  /** Factor of the output of a mixer or a feed-forward part, before it is added. */
  residualScale: float,
  lmHeadBias: z.boolean(),
  /** Logits are divided by it. If the cap is not 0, cap * tanh(logit / cap) follows. */
  logitDivisor: positiveFloat,
  logitCap: notNegative,
  ropes: z.array(ropeSchema),
  layers: z.array(layerSchema).min(1).max(99_999),
  /** Number of layers with a routed part. Placement, packs, planner and recall count only these, from 0 on. 0: a head that drafts without experts. */
  expertLayers: count,
  experts: size,
  expertsPerToken: size,
  expert: gluSchema,
  /**
   * Values of the rows that experts take and give. expertInput makes such a row of the one that the experts' layer would give them, and expertOutput
   * makes a hidden state of their weighted sum (the latent experts of Nemotron 3). Absent: hiddenSize, and a layer has neither.
   */
  expertHiddenSize: size.optional(),
  /**
   * The model is a head that drafts (DeepSeek-V3, section 2.2): a row begins as draftInput x [tokenNorm(embedding) ; stateNorm(state)]. The state
   * is the last one of the token before, of the model for which it drafts, behind that model's final norm, or in a chain of drafts of the head itself:
   * before (`plain`) or behind (`normed`) the head's final norm. Absent: an ordinary model.
   */
  draftHead: z.strictObject({ chained: z.enum(['plain', 'normed']) }).optional(),
  /**
   * Latent attention's queries at position p are multiplied by 1 + beta * log(1 + floor(p / length)) (the "Llama 4 scaling" of Mistral 4). Absent:
   * they are not.
   */
  queryScale: z.strictObject({ beta: positiveFloat, length: size }).optional(),
  /** Absent: the residual is one row. */
  streams: streamsSchema.optional(),
});

export type ModelShape = z.infer<typeof modelShapeSchema>;
export type LayerShape = z.infer<typeof layerSchema>;
export type MixerShape = z.infer<typeof mixerSchema>;
export type AttentionMixer = z.infer<typeof attentionSchema>;
export type BlockIndexerShape = z.infer<typeof blockIndexerSchema>;
export type IndexerShape = z.infer<typeof indexerSchema>;
export type LatentMixer = z.infer<typeof latentSchema>;
export type DeltaMixer = z.infer<typeof deltaSchema>;
export type PooledMixer = z.infer<typeof pooledSchema>;
export type StateSpaceMixer = z.infer<typeof stateSpaceSchema>;
export type RouterShape = z.infer<typeof routerSchema>;
export type RotaryShape = z.infer<typeof rotarySchema>;
export type RopeShape = z.infer<typeof ropeSchema>;
export type StreamsShape = z.infer<typeof streamsSchema>;
export type GluShape = z.infer<typeof gluSchema>;

/** Rows of the gate matrix of a GLU, and of its up matrix. */
export function gateRows({ intermediateSize, activation }: GluShape): number {
  return activation === 'relu-squared' ? intermediateSize / 2 : intermediateSize;
}

/** The fields that give the size of the rows of experts. */
export type ExpertRowShape = Pick<ModelShape, 'hiddenSize' | 'expertHiddenSize'>;

/** Values of the rows that experts take and give. */
export function expertRowSize({ hiddenSize, expertHiddenSize }: ExpertRowShape): number {
  return expertHiddenSize ?? hiddenSize;
}

/** Values of the three matrices of an expert. */
export function expertMatrixValues({ expert, ...shape }: ExpertRowShape & Pick<ModelShape, 'expert'>): number {
  return (2 * gateRows(expert) + expert.intermediateSize) * expertRowSize(shape);
}

/** Values of a part's stream map: one before and one behind the part for each stream, and of mixed streams a mix of all with all. */
export function streamValues({ kind, count }: StreamsShape): number {
  return kind === 'mixed' ? (2 + count) * count : 2 * count;
}

/** Scales of a part's stream map: one for each kind of its values. */
export function streamScales({ kind }: StreamsShape): number {
  return kind === 'mixed' ? 3 : 2;
}

/** True if a layer has a feed-forward part behind its mixer. */
export function hasFeedForward({ always, routed }: Pick<LayerShape, 'always' | 'routed'>): boolean {
  return always !== null || routed !== null;
}

/** The GLU of the layer's experts. */
export function expertGlu(shape: ModelShape, layer: LayerShape): GluShape {
  return layer.expertLimit === undefined ? shape.expert : { ...shape.expert, limit: layer.expertLimit };
}

/** Limits of the experts' GLU, by expert layer; undefined: that of ModelShape.expert. */
export function expertLimits(shape: ModelShape): (number | undefined)[] {
  return shape.layers.filter(({ routed }) => routed !== null).map(({ expertLimit }) => expertLimit);
}

/** Numbers of the layers with a routed part, rising: entry e is the layer of expert layer e. */
export function expertLayerNumbers(shape: ModelShape): number[] {
  return [...shape.layers.keys()].filter((layer) => shape.layers[layer]?.routed !== null);
}

/** Dimensions of a head's values, and of its part of attention's output. */
export function valueHeadDim({ valueDim, headDim }: Pick<AttentionMixer, 'valueDim' | 'headDim'>): number {
  return valueDim ?? headDim;
}

/** FP32 values of one cache row of a layer. Alignment sends them. A cache holds nothing else but the states of recurrences. */
export function cacheRowFloats(mixer: MixerShape, hiddenSize: number): number {
  switch (mixer.kind) {
    case 'attention':
      return mixer.keyValueHeads * (mixer.headDim + valueHeadDim(mixer)) + (mixer.blockIndexer?.headDim ?? 0);
    case 'latent':
      return mixer.latentSize + mixer.ropeSize + indexRowFloats(mixer);
    case 'delta':
      return deltaChannels(mixer) + mixer.valueHeads + deltaDecays(mixer);
    case 'convolution':
      return hiddenSize;
    case 'state-space':
      return stateSpaceChannels(mixer) + mixer.heads;
    case 'pooled':
      return mixer.headDim + pooledParts(mixer) * 2 * (mixer.headDim + (mixer.pools?.indexer?.headDim ?? 0));
  }
}

/** An indexer's part of a cache row: the key, and with pools the gates. */
export function indexRowFloats({ indexer }: LatentMixer): number {
  if (indexer === undefined) return 0;
  return indexer.headDim * (indexer.poolPositions === undefined ? 1 : 2);
}

/** Parts of the values of a pool's position, and of its gates. */
export function pooledParts({ pools }: PooledMixer): number {
  if (pools === undefined) return 0;
  return pools.overlaps ? 2 : 1;
}

/** Entries that a row sees at most, in a context of so many positions. */
export function mostEntries({ pools }: PooledMixer, positions: number): number {
  if (pools === undefined) return 0;
  return Math.min(Math.floor(positions / pools.positions), pools.indexer?.entries ?? Infinity);
}

/** Channels of a delta net's convolution: those of all queries, then of all keys, then of all values. */
export function deltaChannels({ keyHeads, valueHeads, keyDim, valueDim }: DeltaMixer): number {
  return 2 * keyHeads * keyDim + valueHeads * valueDim;
}

/** Decays of a delta net at a position. */
export function deltaDecays({ valueHeads, keyDim, decayWidth }: DeltaMixer): number {
  return decayWidth === 'channel' ? valueHeads * keyDim : valueHeads;
}

/** Channels of a state space's convolution: those of x of all heads, then of B and then of C of all groups. */
export function stateSpaceChannels({ heads, headDim, groups, stateSize }: StateSpaceMixer): number {
  return heads * headDim + 2 * groups * stateSize;
}

/** FP32 values of the state that a mixer carries from position to position: a convolution's last inputs, and a matrix a head; 0: no state. */
export function recurrentStateFloats(mixer: MixerShape, hiddenSize: number): number {
  switch (mixer.kind) {
    case 'attention':
    case 'latent':
    case 'pooled':
      return 0;
    case 'delta':
      return (mixer.taps - 1) * deltaChannels(mixer) + mixer.valueHeads * mixer.keyDim * mixer.valueDim;
    case 'convolution':
      return (mixer.taps - 1) * hiddenSize;
    case 'state-space':
      return (mixer.taps - 1) * stateSpaceChannels(mixer) + mixer.heads * mixer.stateSize * mixer.headDim;
  }
}

/** True if a layer of this kind keeps a state that each position changes. Such a state can be cut back only by a few positions. */
export function isRecurrent(mixer: MixerShape): boolean {
  return mixer.kind !== 'attention' && mixer.kind !== 'latent' && mixer.kind !== 'pooled';
}

/** Most positions before the last pass that can be taken back in a model with recurrent layers (native/addon.d.ts, Sequence.oldestPosition). */
export const TAKEN_BACK_POSITIONS = 32;
