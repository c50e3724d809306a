import type { NamedPart, TensorNames } from './checkpoint-layout.js';
import type { ConfigReader } from './config-reader.js';
import { readAttention, readNormEpsilon } from './decoder-config.js';
import { forLayers, readLayerKinds } from './layer-kinds.js';
import { type AttentionMixer, deltaChannels, type DeltaMixer } from '../../shared/model/model-shape.js';
import { convolutionNames, everyRows, zeroCentred } from './tensor-names.js';
import { checkedTaps } from './taps.js';

/** The mixers of Qwen3-Next and Qwen3.5: gated delta nets, and in some layers attention with a gated output. */
export interface DeltaHybrid {
  delta: DeltaMixer;
  attention: AttentionMixer;
  /** True for each layer with attention. */
  attentionLayers: boolean[];
}

export function readDeltaHybrid(config: ConfigReader): DeltaHybrid {
  config.only('attention_bias', [false], false);
  const delta: DeltaMixer = {
    kind: 'delta',
    keyHeads: config.size('linear_num_key_heads'),
    valueHeads: config.size('linear_num_value_heads'),
    keyDim: config.size('linear_key_head_dim'),
    valueDim: config.size('linear_value_head_dim'),
    taps: checkedTaps(config, 'linear_conv_kernel_dim', config.size('linear_conv_kernel_dim')),
    normEpsilon: readNormEpsilon(config),
  };
  if (delta.valueHeads % delta.keyHeads !== 0) {
    throw config.corrupt(
      `linear_num_value_heads ${delta.valueHeads} is not a multiple of linear_num_key_heads ${delta.keyHeads}`,
    );
  }
  const interval = config.sizeOr(4, 'full_attention_interval');
  const kinds = readLayerKinds(
    config,
    ['linear_attention', 'full_attention'],
    (layer) => ((layer + 1) % interval === 0 ? 'full_attention' : 'linear_attention'),
    { list: 'layer_types', rule: ['full_attention_interval'] },
  );
  const outputGate = config.flagOr(true, 'attn_output_gate');
  return {
    delta,
    attention: readAttention(config, { queryKeyNorm: 'head', outputGate }, { keyValueHeads: 2, headDim: 256 }),
    attentionLayers: kinds.map((kind) => kind === 'full_attention'),
  };
}

/**
 * Tensor names of both mixers. All norms but the gated one are stored as the difference from 1. The query projection holds, head by head, query
 * and gate.
 */
export function deltaHybridNames({ delta, attention }: DeltaHybrid, hiddenSize: number): TensorNames['layer'] {
  const { heads, headDim } = attention;
  const ofHeads = (first: number): NamedPart =>
    everyRows('self_attn.q_proj.weight', [2 * heads * headDim, hiddenSize], {
      first,
      count: headDim,
      step: 2 * headDim,
    });
  return {
    ...(attention.outputGate ? { query: ofHeads(0), outputGate: ofHeads(headDim) } : {}),
    mixerNorm: zeroCentred('input_layernorm.weight'),
    feedForwardNorm: zeroCentred('post_attention_layernorm.weight'),
    queryNorm: zeroCentred('self_attn.q_norm.weight'),
    keyNorm: zeroCentred('self_attn.k_norm.weight'),
    convolution: convolutionNames('linear_attn.conv1d.weight', deltaChannels(delta), delta.taps),
    decayLog: 'linear_attn.A_log',
    decayBias: 'linear_attn.dt_bias',
    deltaNorm: 'linear_attn.norm.weight',
    mixerOutput: ({ layer }) =>
      layer.mixer.kind === 'delta' ? 'linear_attn.out_proj.weight' : 'self_attn.o_proj.weight',
  };
}

/** Names of projections in two tensors, key head by key head: [q | k | v of its value heads | z of them] and [b | a]. */
export function groupedDeltaNames(delta: DeltaMixer, hiddenSize: number): TensorNames['layer'] {
  const { keyHeads, keyDim, valueHeads, valueDim } = delta;
  const perKey = valueHeads / keyHeads;
  const values = perKey * valueDim;
  const step = 2 * keyDim + 2 * values;
  const wide = (first: number, count: number): NamedPart =>
    everyRows('linear_attn.in_proj_qkvz.weight', [keyHeads * step, hiddenSize], { first, count, step });
  const narrow = (first: number): NamedPart =>
    everyRows('linear_attn.in_proj_ba.weight', [2 * valueHeads, hiddenSize], {
      first,
      count: perKey,
      step: 2 * perKey,
    });
  return {
    deltaQuery: wide(0, keyDim),
    deltaKey: wide(keyDim, keyDim),
    deltaValue: wide(2 * keyDim, values),
    deltaGate: wide(2 * keyDim + values, values),
    deltaBeta: narrow(0),
    deltaDecay: narrow(perKey),
  };
}

/** Reads the sizes of Kimi delta attention. `usualHeads`: used if config.json has none. */
export function readChannelDelta(config: ConfigReader, normEpsilon: number, usualHeads: number): DeltaMixer {
  const own = config.within('linear_attn_config');
  // transformers' keys stand beside the checkpoint's, whose values it takes.
  const size = (key: string, other: string, usual: number): number => {
    const said = own?.sizeOr(null, key) ?? null;
    if (said !== null) config.repeats(other, said);
    return said ?? config.sizeOr(usual, other);
  };
  const heads = size('num_heads', 'linear_num_heads', usualHeads);
  const headDim = size('head_dim', 'linear_head_dim', 128);
  const [taps, otherTaps] = ['short_conv_kernel_size', 'linear_conv_kernel_dim'] as const;
  const hasOwn = own?.has(taps) === true;
  return {
    kind: 'delta',
    keyHeads: heads,
    valueHeads: heads,
    keyDim: headDim,
    valueDim: headDim,
    taps: checkedTaps(hasOwn ? own : config, hasOwn ? taps : otherTaps, size(taps, otherTaps, 4)),
    normEpsilon,
    decayWidth: 'channel',
    lowRank: headDim,
    gateFunction: 'sigmoid',
    separateConvolutions: true,
  };
}

/**
 * True for each layer with Kimi delta attention, by the lists of linear_attn_config, which count layers from `first`; null: there are no lists. Each layer
 * stands in one of the two.
 */
export function readChannelDeltaLayers(config: ConfigReader, first: 0 | 1): boolean[] | null {
  const lists = config.within('linear_attn_config');
  const full = lists?.numbersOr(null, 'full_attn_layers') ?? null;
  const linear = lists?.numbersOr(null, 'kda_layers') ?? null;
  if (full === null && linear === null) return null;
  const said = [...(full ?? []), ...(linear ?? [])].sort((a, b) => a - b);
  const numbers = forLayers(config, (layer) => layer + first);
  if (said.length !== numbers.length || said.some((number, index) => number !== numbers[index])) {
    throw config.corrupt(
      `full_attn_layers and kda_layers of linear_attn_config do not name each of the ${numbers.length} layers once`,
    );
  }
  return numbers.map((number) => linear?.includes(number) === true);
}

/** Names of Kimi delta attention: a convolution for each of queries, keys and values, low-rank decays (f) and gates (g). */
export function channelDeltaNames(delta: DeltaMixer): TensorNames['layer'] {
  const { keyHeads, keyDim, valueHeads, valueDim, taps } = delta;
  const convolution = (name: string, channels: number): NamedPart =>
    convolutionNames(`self_attn.${name}_conv1d.weight`, channels, taps);
  return {
    deltaQuery: 'self_attn.q_proj.weight',
    deltaKey: 'self_attn.k_proj.weight',
    deltaValue: 'self_attn.v_proj.weight',
    deltaGateLow: 'self_attn.g_a_proj.weight',
    deltaGate: 'self_attn.g_b_proj.weight',
    deltaBeta: 'self_attn.b_proj.weight',
    deltaDecayLow: 'self_attn.f_a_proj.weight',
    deltaDecay: 'self_attn.f_b_proj.weight',
    queryConvolution: convolution('q', keyHeads * keyDim),
    keyConvolution: convolution('k', keyHeads * keyDim),
    valueConvolution: convolution('v', valueHeads * valueDim),
    decayLog: { name: 'self_attn.A_log', dimensions: [1, 1, valueHeads, 1] },
    decayBias: 'self_attn.dt_bias',
    deltaNorm: 'self_attn.o_norm.weight',
  };
}

/** Names of separate projections; queries, keys and values are in one tensor, one below another. */
export function separateDeltaNames(delta: DeltaMixer, hiddenSize: number): TensorNames['layer'] {
  const keys = delta.keyHeads * delta.keyDim;
  const values = delta.valueHeads * delta.valueDim;
  const rows = (first: number, count: number): NamedPart =>
    everyRows('linear_attn.in_proj_qkv.weight', [2 * keys + values, hiddenSize], { first, count, step: count });
  return {
    deltaQuery: rows(0, keys),
    deltaKey: rows(keys, keys),
    deltaValue: rows(2 * keys, values),
    deltaGate: 'linear_attn.in_proj_z.weight',
    deltaBeta: 'linear_attn.in_proj_b.weight',
    deltaDecay: 'linear_attn.in_proj_a.weight',
  };
}
