import type { ChunkCodec, Split } from './tensor-source.js';

/** Value types of weights, as safetensors names them. */
export const WEIGHT_DTYPES = ['BF16', 'F16', 'F32'] as const;
export type WeightDtype = (typeof WEIGHT_DTYPES)[number];

export function isWeightDtype(dtype: string): dtype is WeightDtype {
  return (WEIGHT_DTYPES as readonly string[]).includes(dtype);
}

/** Device format that keeps values of the type exactly. */
export type ExactFormat = 'bf16' | 'fp16' | 'fp32';

export const EXACT_FORMAT: Readonly<Record<WeightDtype, ExactFormat>> = { BF16: 'bf16', F16: 'fp16', F32: 'fp32' };

/** Bytes of one value in each plane of a split, by plane. */
export const PLANE_BYTES_PER_VALUE: Readonly<Record<Split, readonly number[]>> = {
  'none-bf16': [2],
  'none-fp16': [2],
  'none-fp32': [4],
  'bf16-e8-sm8': [1, 1],
  'fp16-hi8-lo8': [1, 1],
  'fp32-e8-sm8-r16': [1, 1, 2],
  'fp16-e5-lo8-s1m2': [1, 1, 1],
};

const SPLIT_FORMAT: Readonly<Record<Split, ExactFormat>> = {
  'none-bf16': 'bf16',
  'none-fp16': 'fp16',
  'none-fp32': 'fp32',
  'bf16-e8-sm8': 'bf16',
  'fp16-hi8-lo8': 'fp16',
  'fp32-e8-sm8-r16': 'fp32',
  'fp16-e5-lo8-s1m2': 'fp16',
};

/** Device format that keeps the values of a tensor with this split exactly. */
export function exactFormatOf(split: Split): ExactFormat {
  return SPLIT_FORMAT[split];
}

/** Values as a safetensors file holds them. */
export function plainSplit(dtype: WeightDtype): Split {
  return `none-${EXACT_FORMAT[dtype]}`;
}

/** Splits that cut values into several planes. */
export type PlaneSplit = Exclude<Split, `none-${string}`>;

/**
 * How the expert files of a pack with this codec of exponents cut values. The five exponent bits of FP16 are set apart only where a
 * codec gains by it: apart they take a byte and a half for what is one byte.
 */
export function planeSplit(dtype: WeightDtype, codec: ChunkCodec): PlaneSplit {
  if (dtype === 'BF16') return 'bf16-e8-sm8';
  if (dtype === 'F32') return 'fp32-e8-sm8-r16';
  return codec === 'raw' ? 'fp16-hi8-lo8' : 'fp16-e5-lo8-s1m2';
}

/** Bytes of one value. */
export function valueBytes(dtype: WeightDtype): number {
  return dtype === 'F32' ? 4 : 2;
}
