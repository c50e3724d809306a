/** GGUF files of the small models of odd-model.ts, with a type for each tensor, and the same models in FP32. */
import { GGUF_TYPES } from '../../packs/gguf/gguf-types.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { byteLevelKeys } from './gguf-tokenizer-files.js';
import type { WrittenKey, WrittenTensor } from './gguf-writer.js';
import { oddMatrix, type OddType } from './odd-blocks.js';
import { fp32Tensor, type OddSizes, type OddTensor, oddTensors, plainValues, fp32Bytes } from './odd-model.js';
import type { TinyTensor } from './tiny-checkpoint.js';

/** Types that llama-quantize takes where a row is no whole number of blocks (llama.cpp, src/llama-quant.cpp). */
const FALLBACKS: Partial<Record<OddType, OddType>> = {
  Q4_K: 'Q5_0',
  Q6_K: 'Q8_0',
  NVFP4: 'MXFP4',
};

export function fittingType(type: OddType, columns: number): OddType {
  if (columns % GGUF_TYPES[type].columns === 0) return type;
  const other = FALLBACKS[type] ?? 'F16';
  return columns % GGUF_TYPES[other].columns === 0 ? other : 'F16';
}

const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^model\.embed_tokens\./, 'token_embd.'],
  [/^model\.norm\./, 'output_norm.'],
  [/^lm_head\./, 'output.'],
  [/^model\.layers\./, 'blk.'],
  [/input_layernorm/, 'attn_norm'],
  [/post_attention_layernorm/, 'ffn_norm'],
  [/self_attn\.(q|k)_norm/, 'attn_$1_norm'],
  [/self_attn\.o_proj/, 'attn_output'],
  [/self_attn\.(q|k|v)_proj/, 'attn_$1'],
  [/mlp\.gate\./, 'ffn_gate_inp.'],
];
const EXPERT = /^model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight$/;

export interface OddGguf {
  keys: WrittenKey[];
  tensors: WrittenTensor[];
  /** The checkpoint of the same values. */
  fp32: TinyTensor[];
}

/** A tensor for all experts; one for their gates and ups, too; or a tensor for each expert. */
export type GgufExperts = 'stacked' | 'fused' | 'apart';

interface GgufOptions {
  typeOf: (tensor: OddTensor) => OddType;
  experts?: GgufExperts;
  /** No matrix of NVFP4 has its factor in the file: it is 1. */
  leavesOutFactors?: boolean;
}

/** Gives the tensors of a file these types in turn. */
export function typesInTurn(types: readonly OddType[], experts: GgufExperts): GgufOptions['typeOf'] {
  const given = new Map<string, OddType>();
  return ({ name }) => {
    const inFile = name.replace(/experts\.\d+\.(gate|up|down)/, (_, part: string) =>
      experts === 'fused' && part !== 'down' ? 'gate_up' : part,
    );
    const type = given.get(inFile) ?? types[given.size % types.length] ?? 'F32';
    given.set(inFile, type);
    return type;
  };
}

function keysOf(sizes: OddSizes): WrittenKey[] {
  const more = Array.from({ length: sizes.vocabulary - 259 }, (_, index) => ({ token: `word${index}`, type: 1 }));
  const tokenizer = [...byteLevelKeys({}, more)].map(([name, value]): WrittenKey => {
    const first = typeof value === 'object' ? value[0] : value;
    return { name, type: typeof first === 'number' ? 'i32' : 'text', value };
  });
  const numbers = {
    block_count: sizes.layers,
    context_length: 512,
    embedding_length: sizes.hidden,
    feed_forward_length: 0,
    'attention.head_count': sizes.heads,
    'attention.head_count_kv': sizes.keyValueHeads,
    'attention.key_length': sizes.headDim,
    'attention.value_length': sizes.headDim,
    expert_count: sizes.experts,
    expert_used_count: sizes.perToken,
    expert_feed_forward_length: sizes.intermediate,
  };
  return [
    { name: 'general.architecture', type: 'text', value: 'qwen3moe' },
    ...Object.entries(numbers).map(([name, value]) => ({ name: `qwen3moe.${name}`, type: 'u32' as const, value })),
    { name: 'qwen3moe.rope.freq_base', type: 'f32', value: 10_000 },
    { name: 'qwen3moe.attention.layer_norm_rms_epsilon', type: 'f32', value: 1e-5 },
    ...tokenizer,
  ];
}

/** Experts' matrices of one layer and part, by expert, as one tensor. */
interface Stack {
  type: OddType;
  shape: readonly number[];
  parts: Uint8Array[];
}

function stackTensors(stacks: ReadonlyMap<string, Stack>, experts: GgufExperts = 'stacked'): WrittenTensor[] {
  const joined = [...stacks].flatMap(([name, { type, shape, parts }]): WrittenTensor[] => {
    const [prefix = '', part = ''] = name.split(' ');
    if (experts === 'apart') {
      return parts.map((data, expert) => ({
        name: `${prefix}ffn_${part}.${expert}.weight`,
        type,
        dimensions: shape,
        data,
      }));
    }
    const up = stacks.get(`${prefix} up`);
    if (experts !== 'fused' || part === 'down' || up === undefined) {
      const dimensions = [parts.length, ...shape];
      return [{ name: `${prefix}ffn_${part}_exps.weight`, type, dimensions, data: Buffer.concat(parts) }];
    }
    if (part === 'up') return [];
    const [rows = 0, columns = 0] = shape;
    const data = Buffer.concat(parts.flatMap((gate, expert) => [gate, up.parts[expert] ?? gate]));
    return [{ name: `${prefix}ffn_gate_up_exps.weight`, type, dimensions: [parts.length, 2 * rows, columns], data }];
  });
  // ggml writes no outermost dimensions of 1.
  return joined.map((tensor) => ({
    ...tensor,
    dimensions: tensor.dimensions.slice(tensor.dimensions[0] === 1 ? 1 : 0),
  }));
}

export function oddGguf(
  sizes: OddSizes,
  random: SeededRandom,
  { typeOf, experts, leavesOutFactors = false }: GgufOptions,
): OddGguf {
  const [fp32, tensors]: [TinyTensor[], WrittenTensor[]] = [[], []];
  const stacks = new Map<string, Stack>();
  for (const tensor of oddTensors(sizes)) {
    const [rows = 1, columns = rows] = tensor.shape;
    if (tensor.kind === 'vector' || tensor.kind === 'router') {
      const values = plainValues(tensor, random);
      const name = converted(tensor.name);
      fp32.push(fp32Tensor(tensor.name, tensor.shape, values));
      tensors.push({ name, type: 'F32', dimensions: tensor.shape, data: fp32Bytes(values) });
      continue;
    }
    const type = fittingType(typeOf(tensor), columns);
    const { data, values } = oddMatrix(type, rows, columns, random);
    const [, layer = '', , part = ''] = EXPERT.exec(tensor.name) ?? [];
    if (part === '') {
      tensors.push({ name: converted(tensor.name), type, dimensions: tensor.shape, data });
      if (type === 'NVFP4' && !leavesOutFactors) tensors.push(scaleTensor(converted(tensor.name)));
    } else {
      const key = `blk.${layer}. ${part}`;
      const stack = stacks.get(key) ?? { type, shape: tensor.shape, parts: [] };
      stacks.set(key, stack);
      stack.parts.push(data);
    }
    const factor = type === 'NVFP4' && !leavesOutFactors ? NVFP4_SCALE : 1;
    fp32.push(
      fp32Tensor(
        tensor.name,
        tensor.shape,
        values.map((value) => value * factor),
      ),
    );
  }
  const stacked = stackTensors(stacks, experts);
  for (const { name, type } of stacked) if (type === 'NVFP4' && !leavesOutFactors) tensors.push(scaleTensor(name));
  return { keys: keysOf(sizes), tensors: [...tensors, ...stacked], fp32 };
}

/** The factor of all NVFP4 matrices here. */
const NVFP4_SCALE = Math.fround(0.3);

function scaleTensor(name: string): WrittenTensor {
  const data = fp32Bytes(Float32Array.of(NVFP4_SCALE));
  return { name: name.replace(/weight$/, 'scale'), type: 'F32', dimensions: [1], data };
}

function converted(name: string): string {
  return NAMES.reduce((found, [pattern, replacement]) => found.replace(pattern, replacement), name);
}
