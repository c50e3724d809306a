import { assertInvariant } from '../base/errors/assert-invariant.js';
import { type BlockFormat, blockPlaneRowBytes, isBlockFormat } from './block-formats.js';
import type { ChunkCodec, ExactFormat, ShippedFormat, SlicedSplit, Split, WeightFormat } from './tensor-source.js';

/** Value types of weights, as safetensors names them. */
export const WEIGHT_DTYPES = ['BF16', 'F16', 'F32'] as const;
export type WeightDtype = (typeof WEIGHT_DTYPES)[number];

export function isWeightDtype(dtype: string): dtype is WeightDtype {
  return (WEIGHT_DTYPES as readonly string[]).includes(dtype);
}

export const EXACT_FORMAT = { BF16: 'bf16', F16: 'fp16', F32: 'fp32' } as const satisfies Record<
  WeightDtype,
  ExactFormat
>;

/** Columns that share a scale. */
export const MXFP4_BLOCK_COLUMNS = 32;
export const FP8_BLOCK_COLUMNS = 128;
export const SLICE_GROUP_COLUMNS = 32;

/** Bits of the codes in each of the two slices. */
export const SLICE_BITS: Readonly<Record<SlicedSplit, number>> = { sliced84: 4, sliced63: 3, sliced42: 2 };

/** Bytes that a group of columns has beside its codes in the upper slice: an FP16 scale and a byte for the zero. */
const SLICE_SCALE_BYTES = 3;

/** Bytes of one value in each plane, for splits that cut every value alike. */
const VALUE_PLANE_BYTES: Readonly<Record<Exclude<Split, QuantizedSplit | SlicedSplit>, readonly number[]>> = {
  'none-bf16': [2],
  'none-fp16': [2],
  'none-fp32': [4],
  'bf16-e8-sm8': [1, 1],
  'fp16-hi8-lo8': [1, 1],
  'fp32-e8-sm8-r16': [1, 1, 2],
  'fp16-e5-lo8-s1m2': [1, 1, 1],
};

/** Splits of values that are shipped as codes with scales. */
export type QuantizedSplit = 'mxfp4' | 'fp8' | BlockFormat;

export function isQuantizedSplit(split: Split | ShippedFormat): split is QuantizedSplit {
  return split === 'mxfp4' || split === 'fp8' || isBlockFormat(split);
}

/** True if plane 0 has E4M3 values, one a byte. */
export function hasE4m3Codes(split: Split | ShippedFormat): boolean {
  return split === 'fp8' || split === 'fp8-row' || split === 'fp8-tile' || split === 'mxfp8';
}

export function isSlicedSplit(split: Split | WeightFormat): split is SlicedSplit {
  return Object.hasOwn(SLICE_BITS, split);
}

/** Bytes of a row of `columns` values in each plane of a split. For mxfp4, `columns` is a multiple of 32. */
export function planeRowBytes(split: Split, columns: number): number[] {
  if (split === 'mxfp4') return [columns / 2, columns / MXFP4_BLOCK_COLUMNS];
  if (split === 'fp8') return [columns, 4 * Math.ceil(columns / FP8_BLOCK_COLUMNS)];
  if (isSlicedSplit(split)) {
    const groups = Math.ceil(columns / SLICE_GROUP_COLUMNS);
    const codeBytes = (SLICE_BITS[split] * SLICE_GROUP_COLUMNS) / 8;
    return [groups * (codeBytes + SLICE_SCALE_BYTES), groups * codeBytes];
  }
  if (isBlockFormat(split)) return blockPlaneRowBytes(split, columns);
  return VALUE_PLANE_BYTES[split].map((bytes) => bytes * columns);
}

/** Bytes of a row of `columns` values in all planes of a split. */
export function rowBytes(split: Split, columns: number): number {
  return planeRowBytes(split, columns).reduce((sum, bytes) => sum + bytes, 0);
}

const SPLIT_FORMAT: Readonly<Record<Exclude<Split, SlicedSplit | BlockFormat>, ExactFormat>> = {
  'none-bf16': 'bf16',
  'none-fp16': 'fp16',
  'none-fp32': 'fp32',
  'bf16-e8-sm8': 'bf16',
  'fp16-hi8-lo8': 'fp16',
  'fp32-e8-sm8-r16': 'fp32',
  'fp16-e5-lo8-s1m2': 'fp16',
  mxfp4: 'mxfp4',
  fp8: 'fp8',
};

/** Device format that stores the values of a tensor with this split exactly. Slices are no exact form of what was shipped. */
export function exactFormatOf(split: Split): ExactFormat {
  assertInvariant(!isSlicedSplit(split), () => `no format holds ${split} as it was shipped`);
  if (isBlockFormat(split)) return split;
  return SPLIT_FORMAT[split];
}

/** The common format of the tensors, or `mixed`. */
export function shippedFormatOf(tensors: Iterable<{ split: Split }>): ShippedFormat {
  const formats = new Set<ExactFormat>();
  for (const { split } of tensors) formats.add(exactFormatOf(split));
  const [only] = formats;
  return formats.size === 1 && only !== undefined ? only : 'mixed';
}

/** The split of values as a safetensors file holds them. */
export function plainSplit(dtype: WeightDtype): `none-${(typeof EXACT_FORMAT)[WeightDtype]}` {
  return `none-${EXACT_FORMAT[dtype]}`;
}

/** Splits of expert files: several planes each. */
export type PlaneSplit = Exclude<Split, `none-${string}` | SlicedSplit>;

/**
 * The split of values in the expert files of a pack with this codec of exponents. The five exponent bits of FP16 get a separate plane only if a
 * codec gains by it: separate planes take a byte and a half for what would be one byte.
 */
export function planeSplit(format: ExactFormat, codec: ChunkCodec): PlaneSplit {
  if (format === 'bf16') return 'bf16-e8-sm8';
  if (format === 'fp16') return codec === 'raw' ? 'fp16-hi8-lo8' : 'fp16-e5-lo8-s1m2';
  return format === 'fp32' ? 'fp32-e8-sm8-r16' : format;
}

/** Bytes of one value. */
export function valueBytes(dtype: WeightDtype): number {
  return dtype === 'F32' ? 4 : 2;
}
