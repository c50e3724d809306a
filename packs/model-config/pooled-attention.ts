import type { PooledMixer, RotaryShape } from '../../shared/model/model-shape.js';
import { pooledParts } from '../../shared/model/model-shape.js';
import type { LayerTensor, TensorNames } from './checkpoint-layout.js';
import type { ConfigReader } from './config-reader.js';
import { inverseRoot, readNormEpsilon } from './decoder-config.js';
import { listOfLayers, readLayerCount, readLayerKinds } from './layer-kinds.js';
import { type ReadRope, readRope } from './rope-config.js';

/** Kinds of layers by transformers' names: the window alone, and pools with and without an indexer. */
const KINDS = ['sliding_attention', 'compressed_sparse_attention', 'heavily_compressed_attention'] as const;
type Kind = (typeof KINDS)[number];

/** The kind of each ratio in published files. */
const KIND_OF_RATIO: ReadonlyMap<number, Kind> = new Map([
  [0, 'sliding_attention'],
  [4, 'compressed_sparse_attention'],
  [128, 'heavily_compressed_attention'],
]);

/** Of the layers with a window alone, and of those with pools. */
const WINDOW_ROPE = 0;
const POOLED_ROPE = 1;

interface PooledAttention {
  /** Of each layer. */
  mixers: PooledMixer[];
  ropes: readonly [ReadRope, ReadRope];
}

/** Reads the attention of DeepSeek-V4. */
export function readPooledAttention(config: ConfigReader): PooledAttention {
  config.only('attention_bias', [false], false);
  config.only('num_key_value_heads', [1], 1);
  const headDim = config.sizeOr(512, 'head_dim');
  const rotated = readRotatedSize(config, headDim);
  const rotaryOf = (rope: number, dimensions: number): RotaryShape => {
    if (rotated > dimensions) throw config.corrupt(`${rotated} rotated dimensions do not fit a head of ${dimensions}`);
    return { rope, pairing: 'neighbours', offset: dimensions - rotated };
  };
  const base = {
    kind: 'pooled' as const,
    heads: config.size('num_attention_heads'),
    headDim,
    queryRank: config.sizeOr(1024, 'q_lora_rank'),
    outputGroups: config.sizeOr(8, 'o_groups'),
    outputRank: config.sizeOr(1024, 'o_lora_rank'),
    window: config.sizeOr(128, 'sliding_window'),
    normEpsilon: readNormEpsilon(config),
    scoreScale: inverseRoot(headDim),
  };
  const indexDim = config.sizeOr(128, 'index_head_dim');
  const indexer = {
    heads: config.sizeOr(64, 'index_n_heads'),
    headDim: indexDim,
    entries: config.sizeOr(512, 'index_topk'),
    rotary: rotaryOf(POOLED_ROPE, indexDim),
  };
  const sizes = readPoolSizes(config);
  const pooled = { ...base, rotary: rotaryOf(POOLED_ROPE, headDim) };
  const mixerOf: Readonly<Record<Kind, PooledMixer>> = {
    sliding_attention: { ...base, rotary: rotaryOf(WINDOW_ROPE, headDim) },
    compressed_sparse_attention: {
      ...pooled,
      pools: { positions: sizes.compressed_sparse_attention, overlaps: true, indexer },
    },
    heavily_compressed_attention: {
      ...pooled,
      pools: { positions: sizes.heavily_compressed_attention, overlaps: false },
    },
  };
  const kinds = readKinds(config);
  return { mixers: kinds.map((kind) => mixerOf[kind]), ropes: readRopes(config, headDim, rotated) };
}

/** Published files have the number of rotated dimensions, newer ones their share. */
function readRotatedSize(config: ConfigReader, headDim: number): number {
  const share = config.positiveOr(null, 'partial_rotary_factor');
  const byShare = share === null ? null : Math.floor(headDim * share);
  const size = config.sizeOr(byShare ?? Math.floor(headDim / 8), 'qk_rope_head_dim');
  if (byShare !== null && size !== byShare) {
    throw config.corrupt(`partial_rotary_factor ${share} of ${headDim} dimensions is not qk_rope_head_dim ${size}`);
  }
  if (size % 2 !== 0) throw config.corrupt(`${size} dimensions of a head are rotated, which is odd`);
  return size;
}

function readKinds(config: ConfigReader): Kind[] {
  const key = 'compress_ratios';
  // The list goes on with layers that only guess tokens, of which no other key gives the number (DeepSeek-V4-Flash-0731: 3).
  const listed = config.numbersOr(null, key);
  const guessing = Math.max(0, (listed?.length ?? 0) - readLayerCount(config));
  const ratios = listOfLayers(config, key, listed, guessing);
  const byRule = (layer: number): Kind => {
    if (ratios === null) return layer % 2 === 1 && layer > 2 ? KINDS[1] : KINDS[2];
    const ratio = ratios[layer] ?? 0;
    const kind = KIND_OF_RATIO.get(ratio);
    if (kind === undefined) throw config.unsupported(key, ratio, [...KIND_OF_RATIO.keys()].join(' or '));
    return kind;
  };
  return readLayerKinds(config, KINDS, byRule, { list: 'layer_types', rule: [key], guessing });
}

/** Positions of a pool by kind of layer. */
function readPoolSizes(config: ConfigReader): Readonly<Record<Exclude<Kind, 'sliding_attention'>, number>> {
  const given = config.within('compress_rates');
  const sizeOf = (kind: Kind, key: string, usual: number): number =>
    config.sizeOr(given?.sizeOr(usual, kind) ?? usual, key);
  return {
    compressed_sparse_attention: sizeOf('compressed_sparse_attention', 'compress_rate_csa', 4),
    heavily_compressed_attention: sizeOf('heavily_compressed_attention', 'compress_rate_hca', 128),
  };
}

/** The rope of windows alone is a plain one. YaRN of the other has no factor of cosine and sine, unless config.json has one. */
function readRopes(config: ConfigReader, headDim: number, rotated: number): readonly [ReadRope, ReadRope] {
  const nested = config.within('rope_parameters');
  const length = config.picked('max_position_embeddings');
  const sizes = { headDim, rotaryDim: rotated, rotaryKey: 'qk_rope_head_dim' };
  const theta = config.positiveOr(10_000, 'rope_theta');
  const pooledTheta = config.positiveOr(160_000, 'compress_rope_theta');
  const [main, compress] = (['main', 'compress'] as const).map((kind) => nested?.within(kind) ?? null);
  if (main && compress) {
    const newer = config.picked('rope_parameters', 'max_position_embeddings');
    config.repeats('rope_theta', main.positiveOr(theta, 'rope_theta'));
    config.repeats('compress_rope_theta', compress.positiveOr(pooledTheta, 'rope_theta'));
    const pooled = readRope(newer, { ...sizes, theta: pooledTheta }, 'compress');
    return [readRope(newer, { ...sizes, theta }, 'main'), withFactor(pooled, compress)];
  }
  const given = nested ?? config.within('rope_scaling');
  given?.repeats('rope_theta', pooledTheta);
  const older = config.picked('rope_scaling', 'rope_parameters', 'max_position_embeddings');
  const pooled = readRope(older, { ...sizes, theta: pooledTheta });
  return [readRope(length, { ...sizes, theta }), withFactor(pooled, given)];
}

function withFactor(read: ReadRope, parameters: ConfigReader | null): ReadRope {
  const scale = Math.fround(parameters?.positiveOr(null, 'attention_factor') ?? 1);
  return { ...read, rope: { ...read.rope, scale } };
}

/** Names of the tensors of a layer's attention. */
export const POOLED_NAMES: TensorNames['layer'] = {
  queryLow: 'attn.wq_a.weight',
  queryLowNorm: 'attn.q_norm.weight',
  query: 'attn.wq_b.weight',
  key: 'attn.wkv.weight',
  keyNorm: 'attn.kv_norm.weight',
  sinks: 'attn.attn_sink',
  outputLow: 'attn.wo_a.weight',
  mixerOutput: 'attn.wo_b.weight',
  poolValue: 'attn.compressor.wkv.weight',
  poolGate: 'attn.compressor.wgate.weight',
  poolGateBias: gateBias('attn.compressor.ape', ({ headDim }) => headDim),
  poolNorm: 'attn.compressor.norm.weight',
  indexQuery: 'attn.indexer.wq_b.weight',
  indexWeights: 'attn.indexer.weights_proj.weight',
  indexPoolValue: 'attn.indexer.compressor.wkv.weight',
  indexPoolGate: 'attn.indexer.compressor.wgate.weight',
  indexPoolGateBias: gateBias('attn.indexer.compressor.ape', ({ pools }) => pools?.indexer?.headDim ?? 0),
  indexPoolNorm: 'attn.indexer.compressor.norm.weight',
};

function gateBias(name: string, size: (mixer: PooledMixer) => number): LayerTensor {
  return ({ layer: { mixer } }) =>
    mixer.kind === 'pooled'
      ? { name, dimensions: [mixer.pools?.positions ?? 0, pooledParts(mixer) * size(mixer)] }
      : name;
}
