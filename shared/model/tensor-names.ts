import { type NamedTensor, type TensorNames, WHOLE } from './checkpoint-layout.js';
import type { ExpertPart, TensorSlice } from './model-family.js';

/** The names that most families give to what they all have; and no layer's experts. */
export const DECODER_NAMES = {
  prefix: 'model.',
  model: { embedding: 'embed_tokens.weight', finalNorm: 'norm.weight', lmHead: 'lm_head.weight' },
  layer: {
    mixerNorm: 'input_layernorm.weight',
    query: 'self_attn.q_proj.weight',
    queryBias: 'self_attn.q_proj.bias',
    queryNorm: 'self_attn.q_norm.weight',
    key: 'self_attn.k_proj.weight',
    keyBias: 'self_attn.k_proj.bias',
    keyNorm: 'self_attn.k_norm.weight',
    value: 'self_attn.v_proj.weight',
    valueBias: 'self_attn.v_proj.bias',
    mixerOutput: 'self_attn.o_proj.weight',
    mixerOutputBias: 'self_attn.o_proj.bias',
    feedForwardNorm: 'post_attention_layernorm.weight',
    router: 'mlp.gate.weight',
    choiceBias: 'mlp.gate.e_score_correction_bias',
  },
} satisfies Omit<TensorNames, 'expert'>;

const PROJECTIONS: Readonly<Record<ExpertPart, string>> = { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' };

/** Experts that have three matrices of their own: FOLDER.7.gate_proj.weight. */
export function expertsOf(folder: string, parts = PROJECTIONS): TensorNames['expert'] {
  return (part, expert) => `${folder}.${expert}.${parts[part]}.weight`;
}

/** Names of an always part: in a dense layer `dense`, beside experts `shared`. */
export function alwaysOf(dense: string, shared: string, parts = PROJECTIONS): TensorNames['layer'] {
  const name =
    (part: ExpertPart): NonNullable<TensorNames['layer'][keyof TensorNames['layer']]> =>
    ({ layer }) =>
      `${layer.routed === null ? dense : shared}.${parts[part]}.weight`;
  return { alwaysGate: name('gate'), alwaysUp: name('up'), alwaysDown: name('down') };
}

/** Part of a stored tensor, of dimensions that are all given. */
export function sliceOf(name: string, dimensions: readonly number[], slice: Partial<TensorSlice>): NamedTensor {
  const rows = dimensions.slice(0, -1).reduce((product, size) => product * size, 1);
  return { name, dimensions, slice: { ...WHOLE, blockRows: rows, stepRows: rows, ...slice } };
}
