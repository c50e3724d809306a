/**
 * Makes a GGUF file of a small Hugging Face checkpoint as llama.cpp's converter does. The names are those of its gguf-py/gguf/tensor_mapping.py and
 * constants.py, the changes of values and the keys those of its conversion/base.py, llama.py, qwen.py, ernie.py, granite.py, lfm2.py, glm.py and
 * minimax.py. Nothing comes from packs/gguf, so that a wrong mapping there is found.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { byteLevelKeys } from './gguf-tokenizer-files.js';
import type { WrittenKey, WrittenTensor } from './gguf-writer.js';

export type CheckpointConfig = Readonly<Record<string, unknown>>;

/** A tensor of a safetensors file. */
export interface StoredValues {
  name: string;
  dtype: 'BF16' | 'F32';
  dimensions: readonly number[];
  data: Uint8Array;
}

interface SafetensorsEntry {
  dtype: StoredValues['dtype'];
  shape: number[];
  data_offsets: [number, number];
}

export function readStored(directory: string, file = 'model.safetensors'): StoredValues[] {
  const bytes = readFileSync(join(directory, file));
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<string, SafetensorsEntry>;
  const entries = Object.entries(header).filter(([name]) => name !== '__metadata__');
  return entries.map(
    ([
      name,
      {
        dtype,
        shape,
        data_offsets: [from, to],
      },
    ]) => ({
      name,
      dtype,
      dimensions: shape,
      data: bytes.subarray(8 + headerBytes + from, 8 + headerBytes + to),
    }),
  );
}

/** A safetensors file of these tensors. */
export function safetensorsBytes(tensors: readonly StoredValues[]): Buffer {
  let offset = 0;
  const entries = tensors.map(({ name, dtype, dimensions, data }): [string, SafetensorsEntry] => {
    const from = offset;
    offset += data.length;
    return [name, { dtype, shape: [...dimensions], data_offsets: [from, offset] }];
  });
  const text = JSON.stringify(Object.fromEntries(entries));
  const header = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([size, header, ...tensors.map(({ data }) => data)]);
}

/** Names behind "model.layers.N." without their endings, and those behind "blk.N.". */
const IN_LAYER: Readonly<Record<string, string>> = {
  input_layernorm: 'attn_norm',
  operator_norm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  ffn_norm: 'ffn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.out_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'self_attn.q_layernorm': 'attn_q_norm',
  'self_attn.k_layernorm': 'attn_k_norm',
  'conv.conv': 'shortconv.conv',
  'conv.in_proj': 'shortconv.in_proj',
  'conv.out_proj': 'shortconv.out_proj',
  'mlp.gate': 'ffn_gate_inp',
  'block_sparse_moe.gate': 'ffn_gate_inp',
  'block_sparse_moe.router.layer': 'ffn_gate_inp',
  'feed_forward.gate': 'ffn_gate_inp',
  'mlp.shared_expert_gate': 'ffn_gate_inp_shexp',
  'mlp.gate.e_score_correction': 'exp_probs_b',
  'mlp.moe_statics.e_score_correction': 'exp_probs_b',
  'block_sparse_moe.e_score_correction': 'exp_probs_b',
  'feed_forward.expert_bias': 'exp_probs_b',
  'block_sparse_moe.output_linear': 'ffn_down_exps',
  eh_proj: 'nextn.eh_proj',
  embed_tokens: 'nextn.embed_tokens',
  enorm: 'nextn.enorm',
  hnorm: 'nextn.hnorm',
  'shared_head.head': 'nextn.shared_head_head',
  'shared_head.norm': 'nextn.shared_head_norm',
};

const OF_MODEL: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'model.embedding_norm.weight': 'token_embd_norm.weight',
  'lm_head.weight': 'output.weight',
};

const MATRICES: Readonly<Record<string, string>> = {
  gate_proj: 'gate',
  up_proj: 'up',
  down_proj: 'down',
  w1: 'gate',
  w3: 'up',
  w2: 'down',
};

const FEED_FORWARD = /^(?:mlp|feed_forward|block_sparse_moe)\.(?:(shared_experts?)\.|experts\.(\d+)\.)?(\w+)\.weight$/;

/** The name behind "blk.N." of a tensor that is not an expert's; null: an expert's. */
function nameInLayer(name: string, architecture: string): string | null {
  const [, shared, expert, matrix = ''] = FEED_FORWARD.exec(name) ?? [];
  const part = MATRICES[matrix];
  if (part !== undefined)
    return expert !== undefined ? null : `ffn_${part}${shared === undefined ? '' : '_shexp'}.weight`;
  // The converter gives a correction's name the ending of a bias.
  const named = name.replace(/e_score_correction_bias$/, 'e_score_correction.bias').replace(/expert_bias$/, '$&.bias');
  const [, stem = '', ending = ''] = /^(.*)\.(weight|bias)$/.exec(named) ?? [];
  if (architecture === 'glm4moe' && stem === 'post_attention_layernorm') return `post_attention_norm.${ending}`;
  const known = IN_LAYER[stem];
  if (known === undefined) throw new Error(`no name for ${name}`);
  return `${known}.${ending}`;
}

/** Rows of a head from halves to neighbours: LlamaModel.permute. */
function permuted(tensor: StoredValues, heads: number): StoredValues {
  const rows = tensor.dimensions[0] ?? 0;
  const [half, rowBytes] = [rows / heads / 2, tensor.data.length / rows];
  const order = Array.from({ length: rows }, (_, row) => {
    const [head, inHead] = [Math.floor(row / (2 * half)), row % (2 * half)];
    return head * 2 * half + (inHead % 2) * half + Math.floor(inHead / 2);
  });
  const data = Buffer.concat(order.map((row) => tensor.data.subarray(row * rowBytes, (row + 1) * rowBytes)));
  return { ...tensor, data };
}

/** BF16 values as FP32. */
export function asFp32({ dtype, data }: Pick<StoredValues, 'dtype' | 'data'>): Buffer {
  if (dtype === 'F32') return Buffer.from(data);
  const wide = Buffer.alloc(data.length * 2);
  for (let at = 0; at < data.length; at += 2) wide.set(data.subarray(at, at + 2), 2 * at + 2);
  return wide;
}

/** Vectors, norms, routers and short convolutions are FP32 (ModelBase.prepare_tensors); the rest stays BF16. */
function written(name: string, tensor: StoredValues): WrittenTensor {
  const dimensions = tensor.dimensions.filter((length) => length !== 1);
  const exact = dimensions.length < 2 || /_norm\.|ffn_gate_inp|shortconv\.conv/.test(name);
  if (exact || tensor.dtype === 'F32') return { name, type: 'F32', dimensions, data: asFp32(tensor) };
  return { name, type: 'BF16', dimensions, data: tensor.data };
}

/** Rows of an [experts, rows, columns] tensor: the gate's, then the up matrix's (GraniteMoeModel). */
function splitGateUp(prefix: string, tensor: StoredValues): WrittenTensor[] {
  const [experts = 0, rows = 0, columns = 0] = tensor.dimensions;
  const half = tensor.data.length / experts / 2;
  return ['gate', 'up'].map((part, index) => {
    const pieces = Array.from({ length: experts }, (_, expert) =>
      tensor.data.subarray((2 * expert + index) * half, (2 * expert + index + 1) * half),
    );
    const data = Buffer.concat(pieces);
    return { name: `${prefix}ffn_${part}_exps.weight`, type: 'BF16', dimensions: [experts, rows / 2, columns], data };
  });
}

/** Stacks of the experts' matrices, by expert. */
function stacks(tensors: readonly StoredValues[]): WrittenTensor[] {
  const found = new Map<string, StoredValues[]>();
  for (const tensor of tensors) {
    const [, layer, expert, matrix = ''] =
      /^model\.layers\.(\d+)\..*\.experts\.(\d+)\.(\w+)\.weight$/.exec(tensor.name) ?? [];
    if (expert === undefined) continue;
    const name = `blk.${layer}.ffn_${MATRICES[matrix]}_exps.weight`;
    const all = found.get(name) ?? [];
    all[Number(expert)] = tensor;
    found.set(name, all);
  }
  return [...found].map(([name, all]) => ({
    name,
    type: 'BF16',
    dimensions: [all.length, ...(all[0]?.dimensions ?? [])],
    data: Buffer.concat(all.map(({ data }) => data)),
  }));
}

function layerTensors(tensor: StoredValues, architecture: string, config: CheckpointConfig): WrittenTensor[] {
  const [, layer, name = ''] = /^model\.layers\.(\d+)\.(.*)$/.exec(tensor.name) ?? [];
  // Layers that guess ahead are left out (Ernie4_5MoeModel.filter_tensors).
  if (layer === undefined && /^model\.mtp_/.test(tensor.name)) return [];
  const ofModel = OF_MODEL[tensor.name];
  if (layer === undefined) {
    if (ofModel === undefined) throw new Error(`no name for ${tensor.name}`);
    return [written(ofModel, tensor)];
  }
  if (name === 'block_sparse_moe.input_linear.weight') return splitGateUp(`blk.${layer}.`, tensor);
  const inLayer = nameInLayer(name, architecture);
  if (inLayer === null) return [];
  const heads = /^attn_q\./.test(inLayer) ? config['num_attention_heads'] : config['num_key_value_heads'];
  const turns = architecture === 'granitemoe' && /^attn_[qk]\./.test(inLayer);
  return [written(`blk.${layer}.${inLayer}`, turns ? permuted(tensor, Number(heads)) : tensor)];
}

export function ggufTensors(
  tensors: readonly StoredValues[],
  architecture: string,
  config: CheckpointConfig,
): WrittenTensor[] {
  return [...tensors.flatMap((tensor) => layerTensors(tensor, architecture, config)), ...stacks(tensors)];
}

/** Keys of an architecture behind its name; a key whose value a config lacks is not written. */
const WHOLE_NUMBERS: Readonly<Record<string, readonly string[]>> = {
  context_length: ['max_position_embeddings'],
  embedding_length: ['hidden_size'],
  feed_forward_length: ['intermediate_size'],
  'attention.head_count': ['num_attention_heads'],
  'attention.key_length': ['head_dim'],
  'attention.value_length': ['head_dim'],
  vocab_size: ['vocab_size'],
  expert_count: ['num_local_experts', 'num_experts', 'n_routed_experts', 'moe_num_experts'],
  expert_used_count: ['num_experts_per_tok', 'moe_k'],
  expert_group_count: ['n_group'],
  expert_group_used_count: ['topk_group'],
};

const NUMBERS: Readonly<Record<string, readonly string[]>> = {
  'rope.freq_base': ['rope_theta'],
  'attention.layer_norm_rms_epsilon': ['rms_norm_eps', 'norm_eps'],
};

/** Keys that only one architecture has: the config's key, or the number. */
const OWN: Readonly<Record<string, Readonly<Record<string, string | number>>>> = {
  qwen3moe: { expert_feed_forward_length: 'moe_intermediate_size' },
  qwen2moe: {
    expert_feed_forward_length: 'moe_intermediate_size',
    expert_shared_feed_forward_length: 'shared_expert_intermediate_size',
  },
  'ernie4_5-moe': {
    interleave_moe_layer_step: 'moe_layer_interval',
    leading_dense_block_count: 'moe_layer_start_index',
    expert_feed_forward_length: 'moe_intermediate_size',
    expert_shared_count: 'moe_num_shared_experts',
    // intermediate_size / num_key_value_heads, whatever the shared experts have.
    expert_shared_feed_forward_length: 50,
  },
  granitemoe: { 'rope.dimension_count': 16 },
  lfm2moe: {
    expert_feed_forward_length: 'moe_intermediate_size',
    leading_dense_block_count: 'num_dense_layers',
    expert_gating_func: 2,
    'shortconv.l_cache': 'conv_L_cache',
  },
  glm4moe: {
    'rope.dimension_count': 12,
    expert_feed_forward_length: 'moe_intermediate_size',
    expert_shared_count: 'n_shared_experts',
    leading_dense_block_count: 'first_k_dense_replace',
    expert_gating_func: 2,
    nextn_predict_layers: 'num_nextn_predict_layers',
  },
  'minimax-m2': {
    'rope.dimension_count': 'rotary_dim',
    expert_feed_forward_length: 'intermediate_size',
    expert_gating_func: 2,
  },
};

const OWN_NUMBERS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  granitemoe: {
    'attention.scale': 'attention_multiplier',
    embedding_scale: 'embedding_multiplier',
    residual_scale: 'residual_multiplier',
    logit_scale: 'logits_scaling',
  },
  glm4moe: { expert_weights_scale: 'routed_scaling_factor' },
};

function keysOf(
  type: 'u32' | 'f32',
  names: Readonly<Record<string, string | number | readonly string[]>>,
  config: CheckpointConfig,
): WrittenKey[] {
  return Object.entries(names).flatMap(([name, from]): WrittenKey[] => {
    if (typeof from === 'number') return [{ name, type, value: from }];
    const value = [from]
      .flat()
      .map((key) => config[key])
      .find((found) => found !== undefined);
    return value === undefined ? [] : [{ name, type, value: Number(value) }];
  });
}

export function ggufKeys(architecture: string, config: CheckpointConfig): WrittenKey[] {
  const rope = config['rope_parameters'] as CheckpointConfig | undefined;
  const all = { ...rope, ...config };
  const kinds = config['layer_types'] as readonly string[] | undefined;
  const heads = Number(config['num_key_value_heads']);
  // A layer of LFM2 without attention has no key-value heads.
  const ofLayers =
    architecture === 'lfm2moe' ? kinds?.map((kind) => (kind === 'full_attention' ? heads : 0)) : undefined;
  const layers = Number(config['num_hidden_layers']);
  const guessing = architecture === 'glm4moe' ? Number(config['num_nextn_predict_layers']) : 0;
  const own: WrittenKey[] = [
    { name: 'block_count', type: 'u32', value: layers + guessing },
    { name: 'attention.head_count_kv', type: ofLayers === undefined ? 'u32' : 'i32', value: ofLayers ?? heads },
    ...keysOf('u32', WHOLE_NUMBERS, all),
    ...keysOf('f32', NUMBERS, all),
    ...keysOf('u32', OWN[architecture] ?? {}, all),
    ...keysOf('f32', OWN_NUMBERS[architecture] ?? {}, all),
  ];
  if (architecture === 'glm4moe') own.push({ name: 'expert_weights_norm', type: 'bool', value: true });
  return [
    { name: 'general.architecture', type: 'text', value: architecture },
    ...own.map((key) => ({ ...key, name: `${architecture}.${key.name}` })),
  ];
}

/** Tokens that are bytes, before words by their number. */
const BYTE_TOKENS = 259;

/** Keys of a byte-level tokenizer that has so many tokens. */
export function tokenizerKeys(vocabulary: number): WrittenKey[] {
  const words = Array.from({ length: vocabulary - BYTE_TOKENS }, (_, index) => ({ token: `word${index}`, type: 1 }));
  return [...byteLevelKeys({}, words)].map(([name, value]): WrittenKey => {
    const isList = typeof value === 'object';
    const isText = typeof (isList ? value[0] : value) !== 'number';
    return { name, type: isText ? 'text' : isList ? 'i32' : 'u32', value };
  });
}
