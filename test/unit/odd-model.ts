/** Small models of any sizes with random weights: what a checkpoint of Qwen3-MoE has, matrix by matrix. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { logitBits, openResidentModel } from '../integration/generate-resident-model.js';
import { safetensorsBytes, type TinyTensor } from './tiny-checkpoint.js';

export interface OddSizes {
  hidden: number;
  intermediate: number;
  vocabulary: number;
  experts: number;
  perToken: number;
  layers: number;
  heads: number;
  keyValueHeads: number;
  headDim: number;
  tied: boolean;
}

export const SIZES: OddSizes = {
  hidden: 64,
  intermediate: 48,
  vocabulary: 301,
  experts: 3,
  perToken: 2,
  layers: 2,
  heads: 4,
  keyValueHeads: 2,
  headDim: 16,
  tied: false,
};

/** A tensor of the checkpoint. Vectors and routers are never quantized. */
export interface OddTensor {
  name: string;
  shape: readonly number[];
  kind: 'vector' | 'router' | 'embedding' | 'head' | 'linear' | 'expert';
}

export function oddTensors(sizes: OddSizes): OddTensor[] {
  const { hidden, intermediate, headDim } = sizes;
  const [queries, keys] = [sizes.heads * headDim, sizes.keyValueHeads * headDim];
  const tensors: OddTensor[] = [
    { name: 'model.embed_tokens.weight', shape: [sizes.vocabulary, hidden], kind: 'embedding' },
    { name: 'model.norm.weight', shape: [hidden], kind: 'vector' },
  ];
  if (!sizes.tied) tensors.push({ name: 'lm_head.weight', shape: [sizes.vocabulary, hidden], kind: 'head' });
  for (let layer = 0; layer < sizes.layers; layer += 1) {
    const add = (name: string, shape: readonly number[], kind: OddTensor['kind']): void => {
      tensors.push({ name: `model.layers.${layer}.${name}.weight`, shape, kind });
    };
    add('input_layernorm', [hidden], 'vector');
    add('post_attention_layernorm', [hidden], 'vector');
    add('self_attn.q_norm', [headDim], 'vector');
    add('self_attn.k_norm', [headDim], 'vector');
    add('self_attn.q_proj', [queries, hidden], 'linear');
    add('self_attn.k_proj', [keys, hidden], 'linear');
    add('self_attn.v_proj', [keys, hidden], 'linear');
    add('self_attn.o_proj', [hidden, queries], 'linear');
    add('mlp.gate', [sizes.experts, hidden], 'router');
    for (let expert = 0; expert < sizes.experts; expert += 1) {
      add(`mlp.experts.${expert}.gate_proj`, [intermediate, hidden], 'expert');
      add(`mlp.experts.${expert}.up_proj`, [intermediate, hidden], 'expert');
      add(`mlp.experts.${expert}.down_proj`, [hidden, intermediate], 'expert');
    }
  }
  return tensors;
}

export function oddConfig(sizes: OddSizes, quantization: unknown = null): Record<string, unknown> {
  return {
    architectures: ['Qwen3MoeForCausalLM'],
    model_type: 'qwen3_moe',
    vocab_size: sizes.vocabulary,
    hidden_size: sizes.hidden,
    intermediate_size: 0,
    moe_intermediate_size: sizes.intermediate,
    num_hidden_layers: sizes.layers,
    num_attention_heads: sizes.heads,
    num_key_value_heads: sizes.keyValueHeads,
    head_dim: sizes.headDim,
    num_experts: sizes.experts,
    num_experts_per_tok: sizes.perToken,
    norm_topk_prob: true,
    max_position_embeddings: 512,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: sizes.tied,
    ...(quantization !== null && { quantization_config: quantization }),
  };
}

export function fp32Bytes(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

export function fp32Tensor(name: string, shape: readonly number[], values: Float32Array): TinyTensor {
  return { name, dtype: 'F32', shape, data: fp32Bytes(values) };
}

/** Values from -0.25 to 0.25; of vectors from 0.75 to 1.25. */
export function plainValues({ shape, kind }: Pick<OddTensor, 'shape' | 'kind'>, random: SeededRandom): Float32Array {
  const count = shape.reduce((product, size) => product * size, 1);
  const middle = kind === 'vector' ? 1 : 0;
  return Float32Array.from({ length: count }, () => middle + (random.int(257) - 128) / 512);
}

export async function writeCheckpoint(
  directory: string,
  config: Record<string, unknown>,
  tensors: readonly TinyTensor[],
): Promise<string> {
  await mkdir(directory);
  await writeFile(join(directory, 'config.json'), JSON.stringify(config));
  await writeFile(join(directory, 'model.safetensors'), safetensorsBytes(tensors));
  return directory;
}

const PROMPT = [1, 5, 9, 200, 31, 77, 120];
const FURTHER = [44, 7];

/** Logits of the prompt's last token and of two further ones. */
export async function answersOf(path: string): Promise<number[]> {
  const model = await openResidentModel(path);
  try {
    const bits = await logitBits(model, PROMPT, FURTHER, PROMPT.length);
    return bits.flatMap((one) => [...new Float32Array(one.buffer)]);
  } finally {
    model.dispose();
  }
}

/** The largest distance between two answers, as a share of the second one's largest logit. */
export function distance(found: readonly number[], expected: readonly number[]): number {
  const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  if (found.length !== expected.length || !(largest > 0)) return Number.POSITIVE_INFINITY;
  return found.reduce((most, value, at) => {
    const off = Math.abs(value - (expected[at] ?? Number.NaN)) / largest;
    return Number.isNaN(off) ? Number.POSITIVE_INFINITY : Math.max(most, off);
  }, 0);
}
