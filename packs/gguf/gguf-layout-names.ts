/** Names of tensors in GGUF files (llama.cpp, gguf-py/gguf/constants.py, TENSOR_NAMES), by their roles. */
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { inverseRoot } from '../model-config/decoder-config.js';
import { everyRows } from '../model-config/tensor-names.js';
import type { NamedPart } from '../model-config/checkpoint-layout.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import type { AttentionMixer, DeltaMixer, LatentMixer, LayerShape } from '../../shared/model/model-shape.js';
import { deltaChannels } from '../../shared/model/model-shape.js';

/** A layer of a file: what it is, and which tensors it has. */
export interface StoredLayer {
  layer: LayerShape;
  hiddenSize: number;
  /** `name`: behind "blk.N.". */
  has: (name: string) => boolean;
}

/** Names that are the same in all architectures. */
const USUAL: Partial<Record<DenseRole, string>> = {
  mixerNorm: 'attn_norm.weight',
  queryBias: 'attn_q.bias',
  queryNorm: 'attn_q_norm.weight',
  keyBias: 'attn_k.bias',
  keyNorm: 'attn_k_norm.weight',
  valueBias: 'attn_v.bias',
  sinks: 'attn_sinks.weight',
  mixerOutputBias: 'attn_output.bias',
  queryLow: 'attn_q_a.weight',
  queryLowNorm: 'attn_q_a_norm.weight',
  latent: 'attn_kv_a_mqa.weight',
  latentNorm: 'attn_kv_a_norm.weight',
  deltaGate: 'attn_gate.weight',
  decayBias: 'ssm_dt.bias',
  deltaNorm: 'ssm_norm.weight',
  convolutionInput: 'shortconv.in_proj.weight',
  routedNorm: 'pre_ffw_norm_2.weight',
  alwaysOutputNorm: 'post_ffw_norm_1.weight',
  routedOutputNorm: 'post_ffw_norm_2.weight',
  feedForwardOutputNorm: 'post_ffw_norm.weight',
  mixerOutputNorm: 'post_attention_norm.weight',
  layerScale: 'layer_output_scale.weight',
  router: 'ffn_gate_inp.weight',
  routerBias: 'ffn_gate_inp.bias',
  choiceBias: 'exp_probs_b.bias',
  expertScale: 'ffn_down_exps.scale',
};

/** The tensor of a layer, or the part of one, that has this role. Names begin behind "blk.N.". */
export function layerTensor(role: DenseRole, stored: StoredLayer): NamedPart {
  const { layer, has } = stored;
  const usual = USUAL[role];
  if (usual !== undefined && !fused(role, stored)) return { name: usual };
  if (role === 'mixerOutput' && layer.mixer.kind !== 'pooled') return { name: OUTPUTS[layer.mixer.kind] };
  if (role === 'feedForwardNorm') {
    return { name: has('ffn_norm.weight') ? 'ffn_norm.weight' : 'post_attention_norm.weight' };
  }
  if (role === 'alwaysGate' || role === 'alwaysUp' || role === 'alwaysDown') return { name: alwaysName(role, stored) };
  if (role === 'alwaysWeight') return { name: 'ffn_gate_inp_shexp.weight', dimensions: [stored.hiddenSize], slice: {} };
  if (role === 'routerNorm') {
    return { name: 'ffn_gate_inp.scale', slice: { multiply: inverseRoot(stored.hiddenSize) } };
  }
  return mixerTensor(role, stored);
}

const OUTPUTS = {
  attention: 'attn_output.weight',
  latent: 'attn_output.weight',
  delta: 'ssm_out.weight',
  convolution: 'shortconv.out_proj.weight',
  'state-space': 'ssm_out.weight',
} as const;

/** A dense network has the plain names. Beside experts they belong to the shared expert, but Gemma-4 calls its dense network so there, too. */
function alwaysName(role: 'alwaysGate' | 'alwaysUp' | 'alwaysDown', { has }: StoredLayer): string {
  const part = { alwaysGate: 'gate', alwaysUp: 'up', alwaysDown: 'down' }[role];
  const shared = `ffn_${part}_shexp.weight`;
  return has(shared) ? shared : `ffn_${part}.weight`;
}

/** The biases of queries, keys and values may be in one tensor. */
function fused(role: DenseRole, { has }: StoredLayer): boolean {
  return (role === 'queryBias' || role === 'keyBias' || role === 'valueBias') && has('attn_qkv.bias');
}

function mixerTensor(role: DenseRole, stored: StoredLayer): NamedPart {
  const { mixer } = stored.layer;
  switch (mixer.kind) {
    case 'attention':
      return attentionTensor(role, mixer, stored);
    case 'latent':
      return latentTensor(role, mixer, stored);
    case 'delta':
      return deltaTensor(role, mixer, stored);
    case 'convolution':
      return {
        name: 'shortconv.conv.weight',
        dimensions: [stored.hiddenSize, mixer.taps],
        slice: { transposed: true },
      };
    case 'state-space':
    case 'pooled':
      assertInvariant(false, `no architecture of GGUF files that is read has layers of kind ${mixer.kind}`);
  }
}

/** Queries, keys and values: a tensor each, or all in one, one below another. With an output gate, a head's query and gate are neighbours. */
function attentionTensor(role: DenseRole, mixer: AttentionMixer, { hiddenSize, has }: StoredLayer): NamedPart {
  const { heads, keyValueHeads, headDim, outputGate } = mixer;
  const queries = (outputGate ? 2 : 1) * heads * headDim;
  const keys = keyValueHeads * headDim;
  const firstRow = { query: 0, queryBias: 0, outputGate: headDim, key: queries, keyBias: queries }[role as string];
  const first = firstRow ?? queries + keys;
  const count = role === 'query' || role === 'queryBias' || role === 'outputGate' ? queries : keys;
  if (role.endsWith('Bias')) {
    const slice = { firstColumn: first, stepColumns: 1 };
    return { name: 'attn_qkv.bias', dimensions: [queries + 2 * keys], slice };
  }
  const whole = has('attn_qkv.weight');
  const name = whole ? 'attn_qkv.weight' : `attn_${role === 'key' ? 'k' : role === 'value' ? 'v' : 'q'}.weight`;
  const interleaved = outputGate && (role === 'query' || role === 'outputGate');
  if (!whole && !interleaved) return { name };
  const dimensions: readonly [number, number] = [whole ? queries + 2 * keys : queries, hiddenSize];
  if (interleaved) return everyRows(name, dimensions, { first, count: headDim, step: 2 * headDim });
  return { name, dimensions, slice: { firstRow: first, blockRows: count } };
}

/** Files from before April 2025 have both expansions of the latent in one tensor, as the checkpoint does. */
function latentTensor(role: DenseRole, mixer: LatentMixer, { has }: StoredLayer): NamedPart {
  const { heads, queryRank, latentSize, nopeSize, valueSize } = mixer;
  if (role === 'query') return { name: queryRank === 0 ? 'attn_q.weight' : 'attn_q_b.weight' };
  if (!has('attn_kv_b.weight')) {
    return role === 'keyExpansion'
      ? { name: 'attn_k_b.weight', dimensions: [heads, latentSize, nopeSize] }
      : { name: 'attn_v_b.weight', dimensions: [heads, valueSize, latentSize] };
  }
  const step = nopeSize + valueSize;
  const rows =
    role === 'keyExpansion' ? { first: 0, count: nopeSize, step } : { first: nopeSize, count: valueSize, step };
  const part = everyRows('attn_kv_b.weight', [heads * step, latentSize], rows);
  return role === 'keyExpansion' ? { ...part, slice: { ...part.slice, transposed: true } } : part;
}

/**
 * Queries, keys and values in one tensor, one below another; files of Qwen3-Next from before 2026 have them and the gate key head by key head, in
 * one tensor. beta and a in one tensor key head by key head, or in two.
 */
function deltaTensor(role: DenseRole, mixer: DeltaMixer, { hiddenSize, has }: StoredLayer): NamedPart {
  const { keyHeads, keyDim, valueHeads, valueDim, taps } = mixer;
  const [keys, values, each] = [keyHeads * keyDim, valueHeads * valueDim, valueHeads / keyHeads];
  // The file has -exp(A_log); the sign changes without rounding.
  if (role === 'decayLog') return { name: 'ssm_a', slice: { multiply: -1 } };
  if (role === 'convolution') {
    return { name: 'ssm_conv1d.weight', dimensions: [deltaChannels(mixer), taps], slice: { transposed: true } };
  }
  if (role === 'deltaBeta' || role === 'deltaDecay') {
    if (!has('ssm_ba.weight')) return { name: role === 'deltaBeta' ? 'ssm_beta.weight' : 'ssm_alpha.weight' };
    const first = role === 'deltaBeta' ? 0 : each;
    return everyRows('ssm_ba.weight', [2 * valueHeads, hiddenSize], { first, count: each, step: 2 * each });
  }
  const first = role === 'deltaQuery' ? 0 : role === 'deltaKey' ? keys : 2 * keys;
  const slice = { firstRow: first, blockRows: role === 'deltaValue' ? values : keys };
  return { name: 'attn_qkv.weight', dimensions: [2 * keys + values, hiddenSize], slice };
}
