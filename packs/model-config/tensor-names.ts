import type { ExpertMatrix } from '../../shared/model/tensor-source.js';
import type { LayerTensor, NamedPart, NamedTensor, TensorNames } from './checkpoint-layout.js';

/** The names that most families use. */
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
    alwaysGate: 'mlp.gate_proj.weight',
    alwaysUp: 'mlp.up_proj.weight',
    alwaysDown: 'mlp.down_proj.weight',
  },
} satisfies Omit<TensorNames, 'expert'>;

/** Names of the three matrices of a GLU. */
export type PartNames = Readonly<Record<ExpertMatrix, string>>;
const PROJECTIONS: PartNames = { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' };
/** Mixtral's names. */
export const NUMBERED: PartNames = { gate: 'w1', up: 'w3', down: 'w2' };

/** Experts with three separate matrices: FOLDER.7.gate_proj.weight. */
export function expertNames(folder: string, parts = PROJECTIONS): TensorNames['expert'] {
  return (part, expert) => `${folder}.${expert}.${parts[part]}.weight`;
}

/** Experts of a layer in two tensors: [experts, 2 x intermediate, hidden] with the gate's rows first, and [experts, hidden, intermediate]. */
export function fusedExpertNames(gateUp: string, down: string): TensorNames['expert'] {
  return (part, expert, { shape: { experts, hiddenSize, expert: glu } }) => {
    if (part === 'down') {
      const dimensions = [experts, hiddenSize, glu.intermediateSize];
      return { name: down, dimensions, slice: { firstRow: expert * hiddenSize, blockRows: hiddenSize } };
    }
    const rows = glu.intermediateSize;
    const firstRow = (2 * expert + (part === 'up' ? 1 : 0)) * rows;
    return { name: gateUp, dimensions: [experts, 2 * rows, hiddenSize], slice: { firstRow, blockRows: rows } };
  };
}

/** Experts of a layer in three tensors, each of [experts, outputs, inputs]: FOLDER.gate_proj.weight. */
export function stackedExpertNames(folder: string, parts = PROJECTIONS): TensorNames['expert'] {
  return (part, expert, { shape: { experts, hiddenSize, expert: glu } }) => {
    const [rows, columns] = part === 'down' ? [hiddenSize, glu.intermediateSize] : [glu.intermediateSize, hiddenSize];
    const slice = { firstRow: expert * rows, blockRows: rows };
    return { name: `${folder}.${parts[part]}.weight`, dimensions: [experts, rows, columns], slice };
  };
}

/** The same as fusedExpertNames with inputs as rows: [experts, hidden, 2 x intermediate] with the gate's columns first, and [experts, intermediate, hidden]. */
export function turnedExpertNames(gateUp: string, down: string): TensorNames['expert'] {
  return (part, expert, { shape: { experts, hiddenSize, expert: glu } }) => {
    const [inputs, outputs] = part === 'down' ? [glu.intermediateSize, hiddenSize] : [hiddenSize, glu.intermediateSize];
    return {
      name: part === 'down' ? down : gateUp,
      dimensions: [experts, inputs, part === 'down' ? outputs : 2 * outputs],
      slice: {
        firstRow: expert * inputs,
        blockRows: inputs,
        firstColumn: part === 'up' ? outputs : 0,
        transposed: true,
      },
    };
  };
}

/**
 * The forms in which experts of a layer are stored: three matrices each, as most are shipped, or two tensors for all, as transformers 5 saves
 * them. The first form is the one in which the family is shipped.
 */
export function expertForms<T extends Omit<TensorNames, 'expert'>>(
  names: T,
  folder: string,
  shipped: 'separate' | 'fused' = 'separate',
): readonly [T & TensorNames, T & TensorNames] {
  const separate = { ...names, expert: expertNames(folder) };
  const fused = { ...names, expert: fusedExpertNames(`${folder}.gate_up_proj`, `${folder}.down_proj`) };
  return shipped === 'separate' ? [separate, fused] : [fused, separate];
}

/** Names of an always part: `dense` in a dense layer, `shared` beside experts. */
export function alwaysNames(dense: string, shared: string, parts = PROJECTIONS): TensorNames['layer'] {
  const name =
    (part: ExpertMatrix): LayerTensor =>
    ({ layer }) =>
      `${layer.routed === null ? dense : shared}.${parts[part]}.weight`;
  return { alwaysGate: name('gate'), alwaysUp: name('up'), alwaysDown: name('down') };
}

/** A norm that is stored as the difference from 1. */
export function zeroCentred(name: string): NamedTensor {
  return { name, slice: { add: 1 } };
}

/** The weight [channels, 1, taps] of a depthwise convolution, as taps x channels. */
export function convolutionNames(name: string, channels: number, taps: number): NamedPart {
  return { name, dimensions: [channels, 1, taps], slice: { transposed: true } };
}

/** Regularly repeated rows of a stored matrix: `count` rows of every `step`, from `first` on. */
export function everyRows(
  name: string,
  dimensions: readonly [number, number],
  rows: { first: number; count: number; step: number },
): NamedPart {
  return { name, dimensions, slice: { firstRow: rows.first, blockRows: rows.count, stepRows: rows.step } };
}
