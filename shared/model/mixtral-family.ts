import { z } from 'zod';
import { OdmoeError } from '../errors/odmoe-error.js';
import {
  denseDimensions,
  densePlaces,
  EXPERT_PARTS,
  expertDimensions,
  type ExpectedTensor,
  type ExpertPart,
  type ModelConfig,
  type ModelFamily,
} from './model-family.js';
import { shapeProblem } from './model-shape.js';
import type { DenseRole, ModelShape } from './tensor-source.js';

/** A tensor of more values than this could not be addressed; sizes beyond it are lies. */
const SIZE_LIMIT = 2 ** 31 - 1;
const size = z.int().min(1).max(SIZE_LIMIT);
const tokenId = z.int().min(0).max(SIZE_LIMIT);

const ropeSchema = z.looseObject({
  rope_theta: z.number().positive().optional(),
  rope_type: z.string().optional(),
  type: z.string().optional(),
});

/** Defaults are those of transformers' MixtralConfig, for keys that its files may leave out. */
const configSchema = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  intermediate_size: size,
  num_hidden_layers: size.max(99_999),
  num_attention_heads: size,
  num_key_value_heads: size.nullish(),
  head_dim: size.nullish(),
  num_local_experts: size,
  num_experts_per_tok: size,
  rms_norm_eps: z.number().positive().default(1e-5),
  max_position_embeddings: size,
  sliding_window: size.nullish(),
  hidden_act: z.string().default('silu'),
  tie_word_embeddings: z.boolean().default(false),
  eos_token_id: z.union([tokenId, z.array(tokenId)]).nullish(),
  rope_theta: z.number().positive().nullish(),
  rope_scaling: ropeSchema.nullish(),
  rope_parameters: ropeSchema.nullish(),
});
type MixtralConfig = z.infer<typeof configSchema>;

const DEFAULT_ROPE_THETA = 1e6;

const LAYER_TENSOR: Readonly<Partial<Record<DenseRole, string>>> = {
  attentionNorm: 'input_layernorm.weight',
  query: 'self_attn.q_proj.weight',
  key: 'self_attn.k_proj.weight',
  value: 'self_attn.v_proj.weight',
  attentionOutput: 'self_attn.o_proj.weight',
  expertNorm: 'post_attention_layernorm.weight',
  gate: 'block_sparse_moe.gate.weight',
};

const MODEL_TENSOR: Readonly<Partial<Record<DenseRole, string>>> = {
  embedding: 'model.embed_tokens.weight',
  finalNorm: 'model.norm.weight',
  lmHead: 'lm_head.weight',
};

/** Mixtral's names for down(silu(gate x) * (up x)). */
const EXPERT_TENSOR: Readonly<Record<ExpertPart, string>> = { gate: 'w1', up: 'w3', down: 'w2' };

export const mixtralFamily: ModelFamily = {
  name: 'mixtral',
  architectures: ['MixtralForCausalLM'],

  readConfig(raw, path): ModelConfig {
    const parsed = configSchema.safeParse(raw);
    if (!parsed.success) {
      throw new OdmoeError('MODEL_CORRUPT', `${path}: ${z.prettifyError(parsed.error)}; download config.json again`);
    }
    const config = parsed.data;
    checkSupported(config, path);
    const shape = readShape(config, path);
    const eos = config.eos_token_id ?? [];
    return { shape, tiedEmbeddings: config.tie_word_embeddings, eosTokenIds: Array.isArray(eos) ? eos : [eos] };
  },

  *expectedTensors({ shape, tiedEmbeddings }): Generator<ExpectedTensor> {
    for (const { role, layer } of densePlaces(shape, tiedEmbeddings)) {
      const name = MODEL_TENSOR[role] ?? `model.layers.${layer}.${LAYER_TENSOR[role] ?? ''}`;
      yield { name, place: { kind: 'dense', role, layer }, dimensions: denseDimensions(role, shape) };
    }
    for (let layer = 0; layer < shape.layers; layer += 1) {
      for (let expert = 0; expert < shape.experts; expert += 1) {
        for (const part of EXPERT_PARTS) {
          yield {
            name: `model.layers.${layer}.block_sparse_moe.experts.${expert}.${EXPERT_TENSOR[part]}.weight`,
            place: { kind: 'expert', part, layer, expert },
            dimensions: expertDimensions(part, shape),
          };
        }
      }
    }
  },

  isRedundantTensor(name, { tiedEmbeddings }): boolean {
    return name.endsWith('.rotary_emb.inv_freq') || (tiedEmbeddings && name === MODEL_TENSOR.lmHead);
  },
};

function checkSupported(config: MixtralConfig, path: string): void {
  const unsupported = (problem: string): OdmoeError =>
    new OdmoeError('MODEL_UNSUPPORTED', `${path}: ${problem}; choose a checkpoint without it`);
  if (config.hidden_act !== 'silu') {
    throw unsupported(`hidden_act is ${JSON.stringify(config.hidden_act)}, supported is "silu"`);
  }
  for (const key of ['rope_parameters', 'rope_scaling'] as const) {
    const type = config[key]?.rope_type ?? config[key]?.type ?? 'default';
    if (type !== 'default') throw unsupported(`${key} has rope_type ${JSON.stringify(type)}, supported is "default"`);
  }
}

function readShape(config: MixtralConfig, path: string): ModelShape {
  const contradiction = (problem: string): OdmoeError =>
    new OdmoeError('MODEL_CORRUPT', `${path}: ${problem}; download config.json again`);
  const heads = config.num_attention_heads;
  if ((config.head_dim ?? null) === null && config.hidden_size % heads !== 0) {
    throw contradiction(
      `hidden_size ${config.hidden_size} is not a multiple of num_attention_heads ${heads} and there is no head_dim`,
    );
  }
  const shape: ModelShape = {
    vocabSize: config.vocab_size,
    hiddenSize: config.hidden_size,
    intermediateSize: config.intermediate_size,
    layers: config.num_hidden_layers,
    heads,
    keyValueHeads: config.num_key_value_heads ?? heads,
    headDim: config.head_dim ?? config.hidden_size / heads,
    experts: config.num_local_experts,
    expertsPerToken: config.num_experts_per_tok,
    normalizeTopK: true,
    rmsNormEpsilon: config.rms_norm_eps,
    ropeTheta: config.rope_parameters?.rope_theta ?? config.rope_theta ?? DEFAULT_ROPE_THETA,
    slidingWindow: config.sliding_window ?? 0,
    maxPositions: config.max_position_embeddings,
  };
  const problem = shapeProblem(shape);
  if (problem !== null) throw contradiction(problem);
  return shape;
}
